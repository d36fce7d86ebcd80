"""Starts on a real Kafka: at the same moment as others, and while a connection breaks off."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from threading import Barrier
from urllib.parse import urlsplit

import pytest

from oncemq.contracts.adapter import Subscription
from oncemq.errors import BrokerUnavailable
from oncemq.testing.tcp_proxy import TcpProxy
from oncemq_adapters.kafka.address import parse_address
from oncemq_adapters.kafka.administration import Administration
from support.brokers.kafka import QUICK, adapter_on

STARTS = 4
LOGINS = 40
"""More than the client makes in the time for one question."""


class BreakingLogins(TcpProxy):
    """Loses the connection of the first logins, while the broker answers with the mechanisms that it has."""

    def __init__(self, host: str, port: int, logins: int) -> None:
        super().__init__(host, port)
        self.broken = 0
        self._logins = logins

    def changed(self, data: bytes) -> bytes:
        """Pass an answer, or lose it and its connection."""
        if b"PLAIN" in data and self.broken < self._logins:
            self.broken += 1
            raise ConnectionResetError
        return data


@pytest.fixture
def broken_logins(kafka_url: str, request: pytest.FixtureRequest) -> Iterator[BreakingLogins]:
    """Yield a way to the shared server on which so many logins break off."""
    server = urlsplit(kafka_url)
    with BreakingLogins(server.hostname or "", server.port or 0, request.param) as proxy:
        yield proxy


def through(proxy: TcpProxy, kafka_url: str, patience: str) -> Administration:
    """Return a client that reaches the server by this way first, and waits so long for an answer."""
    login = urlsplit(kafka_url).netloc.rpartition("@")[0]
    address = parse_address(f"kafka://{login}@{proxy.address}", {**QUICK, "connect_timeout": patience})
    return Administration(address, "tests")


def test_a_topic_that_another_process_has_just_made_is_used(kafka_url: str, fresh: str) -> None:
    """Of two that find a topic missing, the second is told that it exists, and uses it."""
    operator = Administration(parse_address(kafka_url, QUICK), "tests")
    operator.create(fresh, 2, {})
    operator.create(fresh, 2, {})
    assert operator.partitions(fresh) == 2


def test_processes_that_start_at_once_on_a_missing_topic_all_start(kafka_url: str, fresh: str) -> None:
    """Whichever of them makes the topics first, all go on."""
    adapters = [adapter_on(kafka_url, **QUICK) for _ in range(STARTS)]
    subscription = Subscription("points", fresh, f"g{fresh}", {})
    together = Barrier(STARTS)

    def start(number: int) -> None:
        together.wait()
        adapters[number].prepare([subscription])

    try:
        with ThreadPoolExecutor(STARTS) as pool:
            assert list(pool.map(start, range(STARTS))) == [None] * STARTS
    finally:
        for adapter in adapters:
            adapter.close(grace=timedelta(seconds=1))


@pytest.mark.parametrize("broken_logins", [LOGINS], indirect=True)
def test_a_connection_that_is_lost_during_a_login_is_made_again(
    broken_logins: BreakingLogins, kafka_url: str
) -> None:
    """A broker that dies meanwhile has refused no one: a later login is taken."""
    through(broken_logins, kafka_url, "60s").connect()
    assert broken_logins.broken == LOGINS


@pytest.mark.parametrize("broken_logins", [10**6], indirect=True)
def test_connections_that_are_lost_during_every_login_are_no_wrong_password(
    broken_logins: BreakingLogins, kafka_url: str
) -> None:
    """The error says that there was no answer, and is one that passes."""
    with pytest.raises(BrokerUnavailable, match="no answer from Kafka") as caught:
        through(broken_logins, kafka_url, "2s").connect()
    assert "refuses" not in str(caught.value)
