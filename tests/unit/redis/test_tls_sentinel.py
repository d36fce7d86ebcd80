"""TLS to sentinels and to the server that they name, with certificates on both sides."""

import gc
import threading
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest

from oncemq.errors import RedisRefused, RedisUnavailable
from oncemq.redis.client import RedisClient
from oncemq.redis.connect import make_client
from oncemq.redis.probe import prove
from oncemq.redis.tls import TlsFiles
from oncemq_strategies.redisson import Lock
from services import catalog
from services.ports import LOOPBACK
from support.tls.certificates import Authority, Certificate
from support.tls.servers import TlsSentinel

pytestmark = [
    pytest.mark.server,
    pytest.mark.slow,
    # The older client leaves the sockets of refused connections to the garbage collector.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture(autouse=True)
def collected() -> Iterator[None]:
    """Have the garbage collected here, where its warnings are expected, and not in a later test."""
    yield
    gc.collect()


class Pair:
    """A sentinel, its server and the certificates of everyone."""

    def __init__(self, folder: Path) -> None:
        self.ours, self.other = Authority(folder, "ours"), Authority(folder, "other-authority")
        # A sentinel names its server by its address, which is what the server's certificate must say.
        self.right = self.ours.issue("address", LOOPBACK)
        self.elsewhere = self.ours.issue("elsewhere", "elsewhere.invalid")
        self.mine = self.ours.issue("client", "client.invalid")
        server = catalog.OwnServers(catalog.FOLDER).make(TlsSentinel)
        assert isinstance(server, TlsSentinel)
        self.server = server
        server.authority, server.sentinels_certificate = self.ours.file, self.right

    def serve(self, certificate: Certificate) -> None:
        """Have the server behind the sentinel show this one."""
        self.server.stop()
        self.server.certificate = certificate
        self.server.start()

    def client(self, authority: Authority, certificate: Certificate | None) -> RedisClient:
        """Return a client that trusts `authority` and shows `certificate`."""
        shown = (str(certificate.certificate), str(certificate.key)) if certificate else (None, None)
        return make_client(self.server.url_for(LOOPBACK), files=TlsFiles(str(authority.file), *shown))


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """Both, with the right certificates."""
    pair = Pair(tmp_path_factory.mktemp("tls"))
    try:
        pair.serve(pair.right)
        yield pair
    finally:
        catalog.OwnServers(catalog.FOLDER).remove(pair.server)


def test_a_lock_is_handed_over_behind_a_sentinel(pair: Pair, fresh: str) -> None:
    """Commands and messages come from the server that the sentinel names; its certificate and ours are right."""
    got = threading.Event()

    def wait() -> None:
        with Lock(other, fresh):
            got.set()

    with (
        closing(pair.client(pair.ours, pair.mine)) as client,
        closing(pair.client(pair.ours, pair.mine)) as other,
    ):
        prove(client)
        lock, waiter = Lock(client, fresh), threading.Thread(target=wait)
        assert lock.acquire(timedelta(0))
        waiter.start()
        assert not got.wait(0.3)
        lock.release()
        assert got.wait(1.0)
        waiter.join(10)


def test_a_sentinel_of_another_authority_is_not_believed(pair: Pair) -> None:
    """The error says so, and what to write."""
    with (
        closing(pair.client(pair.other, pair.mine)) as client,
        pytest.raises(RedisRefused, match=r"verify failed.*write ca:"),
    ):
        prove(client)


def test_who_shows_no_certificate_is_refused(pair: Pair) -> None:
    """Where the servers ask for one, and are there for those who show one."""
    with closing(pair.client(pair.ours, pair.mine)) as welcome:
        prove(welcome)
    with closing(pair.client(pair.ours, None)) as client, pytest.raises((RedisRefused, RedisUnavailable)):
        prove(client)


def test_a_server_that_cannot_prove_who_it_is_is_told_nothing(pair: Pair) -> None:
    """That a sentinel named it is no proof."""
    pair.serve(pair.elsewhere)
    with (
        closing(pair.client(pair.ours, pair.mine)) as client,
        pytest.raises(RedisRefused, match=r"match|mismatch|valid for"),
    ):
        prove(client)
