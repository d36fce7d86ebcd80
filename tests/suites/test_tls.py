"""TLS to real servers: anyone who cannot prove to be the server that was asked for is refused, in words that say why."""

from collections.abc import Iterator
from datetime import timedelta

import pytest
from sqlalchemy import Engine

from oncemq.common.clock import SystemClock
from oncemq.contracts.adapter import AdapterScope, Subscription
from oncemq.errors import BrokerRefused, LedgerError
from oncemq.ledger.database.engine import make_engine
from oncemq.ledger.database.probe import prove
from oncemq_adapters.rabbitmq import RabbitMQAdapter
from support.tls.cases import CASES, Case, Material, Serve, serving
from support.tls.servers import TlsMariaDB, TlsPostgreSQL, TlsRabbitMQ

pytestmark = [pytest.mark.server, pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def material(tmp_path_factory: pytest.TempPathFactory) -> Material:
    """The certificates."""
    return Material(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def rabbitmq(material: Material) -> Iterator[tuple[TlsRabbitMQ, Serve]]:
    """A RabbitMQ of this module's own, and a way to have it show another certificate."""
    yield from serving(TlsRabbitMQ, material)


@pytest.fixture(scope="module")
def postgresql(material: Material) -> Iterator[tuple[TlsPostgreSQL, Serve]]:
    """A PostgreSQL of this module's own, and a way to have it show another certificate."""
    yield from serving(TlsPostgreSQL, material)


@pytest.fixture(scope="module")
def mariadb(material: Material) -> Iterator[tuple[TlsMariaDB, Serve]]:
    """A MariaDB of this module's own, and a way to have it show another certificate."""
    yield from serving(TlsMariaDB, material)


def _adapter(server: TlsRabbitMQ, material: Material, case: Case, **options: object) -> RabbitMQAdapter:
    ca = {"ca": str(material.trusted[case.trusted])} if case.trusted else {}
    scope = AdapterScope("tls", "secure", SystemClock())
    return RabbitMQAdapter.build(
        server.url_for(case.host), {**ca, "connect_timeout": "20s", **options}, scope
    )


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_rabbitmq_must_prove_who_it_is(
    rabbitmq: tuple[TlsRabbitMQ, Serve], material: Material, case: Case, fresh: str
) -> None:
    """Only the host that was asked for, vouched for by the given authority and in time, is talked to."""
    server, serve = rabbitmq
    serve(case.served)
    adapter = _adapter(server, material, case)
    try:
        if not case.why:
            adapter.prepare([Subscription("tls", fresh, fresh)])
            return
        with pytest.raises(BrokerRefused, match=case.why) as caught:
            adapter.prepare([Subscription("tls", fresh, fresh)])
        assert "TLS" in str(caught.value)
        assert f"{case.host}:{server.tls_port}" in str(caught.value)
    finally:
        adapter.close(grace=timedelta(seconds=5))


def test_rabbitmq_without_tls_on_the_port_of_tls(
    rabbitmq: tuple[TlsRabbitMQ, Serve], material: Material, fresh: str
) -> None:
    """Plain text is not what a TLS listener is told, and no password goes over the line."""
    server, serve = rabbitmq
    serve("self-signed")
    adapter = RabbitMQAdapter.build(
        server.url_for("localhost").replace("amqps", "amqp"), {}, AdapterScope("tls", "plain", SystemClock())
    )
    try:
        with pytest.raises(Exception, match=r"amqps|reach|speak"):
            adapter.prepare([Subscription("tls", fresh, fresh)])
    finally:
        adapter.close(grace=timedelta(seconds=5))


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_postgresql_must_prove_who_it_is(
    postgresql: tuple[TlsPostgreSQL, Serve], material: Material, case: Case
) -> None:
    """With sslmode=verify-full only the right server is talked to; the refusal says what is wrong with its certificate."""
    server, serve = postgresql
    serve(case.served)
    root = material.trusted[case.trusted] if case.trusted else "system"
    engine = make_engine(f"{server.url_for(case.host)}?sslmode=verify-full&sslrootcert={root}")
    try:
        if not case.why:
            prove(engine)
            with engine.connect() as connection:
                in_tls = "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()"
                assert connection.exec_driver_sql(in_tls).scalar() is True
            return
        with pytest.raises(LedgerError, match=case.why) as caught:
            prove(engine)
        assert "TLS" in str(caught.value)
    finally:
        engine.dispose()


@pytest.mark.parametrize(
    "case",
    [case for case in CASES.values() if case.trusted],
    ids=[name for name, case in CASES.items() if case.trusted],
)
def test_mariadb_must_prove_who_it_is(
    mariadb: tuple[TlsMariaDB, Serve], material: Material, case: Case
) -> None:
    """With ssl_ca and ssl_check_hostname only the right server is talked to; the refusal says what is wrong."""
    server, serve = mariadb
    serve(case.served)
    trusted = f"ssl_ca={material.trusted[case.trusted]}&ssl_check_hostname=true"
    engine = make_engine(f"{server.url_for(case.host)}?{trusted}")
    try:
        if not case.why:
            prove(engine)
            assert _cipher(engine)
            return
        with pytest.raises(LedgerError, match=case.why) as caught:
            prove(engine)
        assert "TLS" in str(caught.value)
    finally:
        engine.dispose()


def test_a_mariadb_that_offers_tls_needs_no_word_of_it(mariadb: tuple[TlsMariaDB, Serve]) -> None:
    """A URL that says nothing of TLS works with a server that offers it; newer drivers take the offer."""
    server, serve = mariadb
    serve("self-signed")
    engine = make_engine(server.url_for("localhost"))
    try:
        prove(engine)
    finally:
        engine.dispose()


def _cipher(engine: Engine) -> str:
    with engine.connect() as connection:
        return str(connection.exec_driver_sql("SHOW STATUS LIKE 'Ssl_cipher'").one()[1])
