"""Where `publisher.request` is refused: it would wait in an open transaction, or its broker carries no answers."""

import asyncio
import contextvars
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Session

from oncemq import App, AppPublisher, Batch, Unpublishable
from oncemq.errors import HandlerFault
from oncemq.idempotent_requests import RequestLedger, Rules, idempotent
from oncemq.ledger import schema
from support.apps.payments import SERVICES, Call


@pytest.fixture
def app(tmp_path: Path) -> App:
    """An app on the embedded broker and SQLite."""
    found = App(
        "shop",
        brokers={"main": f"embedded:///{tmp_path}/broker.db"},
        database=f"sqlite:///{tmp_path}/shop.db",
    )
    found.topic("orders", key="body.id", strategies=["unique_key"])
    found.topic("prices", key="body.id", strategies=["unique_key"])
    schema.create(create_engine(f"sqlite:///{tmp_path}/shop.db"))
    return found


@pytest.fixture
def asker(app: App) -> Iterator[AppPublisher]:
    """An open publisher of the app, as a module of it has one."""
    with app.publisher() as publisher:
        yield publisher


def ask(publisher: AppPublisher) -> BaseException:
    """Return why a request is refused."""
    try:
        publisher.request("prices", {"id": "p"}, wait="5s")
    except (HandlerFault, RuntimeError) as error:
        return error
    raise AssertionError("it was not refused")


def test_a_broker_without_answers_is_named(asker: AppPublisher) -> None:
    """Nothing is published, and the words say what can be done."""
    error = ask(asker)
    assert isinstance(error, Unpublishable)
    assert "broker 'main' of topic 'prices' carries no answers" in str(error)


def in_transaction(error: BaseException) -> bool:
    """Return whether a request was refused for its open transaction."""
    return "inside of an open transaction" in str(error)


def sync_handler(found: list[BaseException], asker: AppPublisher) -> Callable[..., Any]:
    """Return a handler with its unit's Session."""

    def handler(body: dict, session: Session) -> None:
        found.append(ask(asker))

    return handler


def batch_handler(found: list[BaseException], asker: AppPublisher) -> Callable[..., Any]:
    """Return a handler of batches."""

    def handler(batch: Batch[dict], session: Session) -> None:
        found.append(ask(asker))

    return handler


@pytest.mark.parametrize("make", [sync_handler, batch_handler])
def test_a_handler_with_a_transaction_may_not_wait(
    app: App, asker: AppPublisher, make: Callable[..., Any]
) -> None:
    """What it waits for could need the rows that it has locked, and does not see what it has written."""
    found: list[BaseException] = []
    app.consumer(topic="orders")(make(found, asker))
    asker.publish("orders", {"id": "o"})
    app.run(until_idle="100ms")
    assert [in_transaction(error) for error in found] == [True]


def test_an_async_handler_with_a_transaction_may_not_wait(app: App, asker: AppPublisher) -> None:
    """The same for coroutines and the publisher for coroutines."""
    found: list[BaseException] = []

    @app.consumer(topic="orders")
    async def handler(body: dict, session: AsyncSession) -> None:
        try:
            await app.async_publisher().request("prices", {"id": "p"}, wait="5s")
        except HandlerFault as error:
            found.append(error)

    asker.publish("orders", {"id": "o"})
    app.run(until_idle="100ms")
    assert [in_transaction(error) for error in found] == [True]


def test_a_handler_with_external_effects_may_ask(app: App, asker: AppPublisher) -> None:
    """It holds nothing: only the broker of this test cannot carry it."""
    found: list[BaseException] = []

    @app.consumer(topic="orders", effects="external", strategies=["none"])
    def handler(body: dict) -> None:
        found.append(ask(asker))

    asker.publish("orders", {"id": "o"})
    app.run(until_idle="100ms")
    assert [type(error) for error in found] == [Unpublishable]


def test_after_a_unit_its_thread_may_ask(app: App, asker: AppPublisher) -> None:
    """Also in a context that was copied inside of it, as that of a task."""
    copies: list[contextvars.Context] = []

    @app.consumer(topic="orders")
    def handler(body: dict, session: Session) -> None:
        copies.append(contextvars.copy_context())

    asker.publish("orders", {"id": "o"})
    app.run(until_idle="100ms")
    assert not in_transaction(copies[0].run(ask, asker))


@pytest.fixture
def ledger(sqlite_database: str, fresh: str) -> Iterator[RequestLedger]:
    """A ledger of protected requests and calls."""
    ledger = RequestLedger(sqlite_database, fresh)
    ledger.create_tables()
    yield ledger
    ledger.close()


@pytest.mark.parametrize("interface", sorted(SERVICES))
def test_a_protected_request_may_not_wait(ledger: RequestLedger, asker: AppPublisher, interface: str) -> None:
    """Its answer commits with its record, so its transaction is open while it runs, whichever thread runs it."""

    def service(_: Mapping[str, Any]) -> tuple[int, dict[str, str], bytes]:
        return 200, {}, str(ask(asker)).encode()

    answer = SERVICES[interface](service, ledger, Rules(tenant=None)).call(Call(b"{}"))
    assert b"inside of an open transaction" in answer.body


def test_a_protected_call_may_not_wait(ledger: RequestLedger, asker: AppPublisher) -> None:
    """Nor may a function whose record and effect are in one transaction."""

    @idempotent(ledger, key=lambda order: order)
    def protected(order: str, session: Session) -> str:
        return str(ask(asker))

    assert "inside of an open transaction" in protected("o-1")


@pytest.mark.parametrize("wait", [0, "0s", -1, "soon", True, None, float("nan")])
def test_a_wait_that_is_none_is_refused(asker: AppPublisher, wait: Any) -> None:
    """Before anything is published."""
    with pytest.raises(Unpublishable, match="wait="):
        asker.request("prices", {"id": "p"}, wait=wait)


def test_an_async_wait_that_is_none_is_refused(app: App) -> None:
    """Before anything is published."""

    async def run() -> None:
        async with app.async_publisher() as publisher:
            await publisher.request("prices", {"id": "p"}, wait=0)

    with pytest.raises(Unpublishable, match="wait=0"):
        asyncio.run(run())
