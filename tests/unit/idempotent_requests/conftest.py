"""Fixtures of the tests of protected requests: a ledger on each database, and the service on each interface."""

from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import delete

from oncemq.idempotent_requests import RequestLedger, Rules
from oncemq.testing.fake_clock import FakeClock
from support.apps.payments import METADATA, PAYMENTS, SERVICES, Handler, MakeService, Service, pay
from support.database.shared_database import shared_database


@pytest.fixture
def clock() -> FakeClock:
    """A clock that is blocked unless told."""
    return FakeClock()


@pytest.fixture(
    scope="session",
    params=[
        "sqlite",
        pytest.param("postgresql", marks=pytest.mark.server),
        pytest.param("mariadb", marks=pytest.mark.server),
    ],
)
def requests_url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """URL of a database with all tables, once of each kind; each test has a ledger with a name of its own."""
    if request.param == "sqlite":
        yield prepared(f"sqlite:///{tmp_path_factory.mktemp('requests') / 'requests.db'}")
        return
    with shared_database(request.getfixturevalue(f"{request.param}_url")) as url:
        yield prepared(url)


@pytest.fixture
def ledger(requests_url: str, clock: FakeClock, fresh: str) -> Iterator[RequestLedger]:
    """A ledger of the test's own, once on each database."""
    yield from lent_ledger(requests_url, clock, fresh)


@pytest.fixture
def file_ledger(sqlite_database: str, clock: FakeClock, fresh: str) -> Iterator[RequestLedger]:
    """A ledger on SQLite, for what does not depend on the database."""
    yield from lent_ledger(prepared(sqlite_database), clock, fresh)


def prepared(url: str) -> str:
    """Create the ledger's tables and the service's; returns the URL."""
    ledger = RequestLedger(url, "absent")
    ledger.create_tables()
    METADATA.create_all(ledger.engine)
    ledger.close()
    return url


def lent_ledger(url: str, clock: FakeClock, name: str) -> Iterator[RequestLedger]:
    """Lend a ledger, beside an empty table of payments."""
    ledger = RequestLedger(url, name, clock=clock)
    with ledger.engine.begin() as connection:
        connection.execute(delete(PAYMENTS))
    yield ledger
    ledger.close()


@pytest.fixture(params=sorted(SERVICES))
def make_service(request: pytest.FixtureRequest) -> MakeService:
    """Makes the service, once on WSGI and once on ASGI."""

    def make(ledger: RequestLedger, handler: Handler = pay, **rules: Any) -> Service:
        return SERVICES[request.param](handler, ledger, Rules(**{"tenant": None, **rules}))

    return make
