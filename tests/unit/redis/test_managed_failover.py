"""A managed fail-over: the name means another server, and the old master stays up as a replica with open connections."""

from collections.abc import Iterator
from contextlib import closing
from socketserver import StreamRequestHandler, ThreadingTCPServer
from threading import Barrier, Thread

import pytest

from oncemq.redis import RedisClient
from oncemq.redis.address import parse_address
from oncemq.redis.call import Call
from oncemq.redis.connect import client_of, make_client
from oncemq.testing.tcp_proxy import LOOPBACK, TcpProxy
from oncemq_strategies.redis_lock.unit_locks import Tried, UnitLocks
from oncemq_strategies.redisson import Lock
from support.servers import OwnServer

NOWHERE = "1"


class Pair:
    """An old and a new master behind one name."""

    def __init__(self, own_redis: OwnServer) -> None:
        self.old, self.new = own_redis(), own_redis()
        self.name = TcpProxy(LOOPBACK, self.old.port)
        self.url = self.old.url.replace(str(self.old.port), str(self.name.port))
        self._admin = make_client(self.old.url)
        self.new_url = self.old.url.replace(str(self.old.port), str(self.new.port))
        with closing(make_client(self.new.url)) as new:
            password = str(parse_address(self.old.url).password)
            new.command("CONFIG", "SET", "requirepass", password, key="")

    def fail_over(self, *, stale: bool) -> None:
        """Make the old master a replica, which answers reads or does not, and the name mean the new one."""
        if not stale:
            self._admin.command("CONFIG", "SET", "replica-serve-stale-data", "no", key="")
        self._admin.command("REPLICAOF", LOOPBACK, NOWHERE, key="")
        self.name.redirect(LOOPBACK, self.new.port)

    def close(self) -> None:
        """Close the name."""
        self._admin.close()
        self.name.close()


@pytest.fixture
def pair(own_redis: OwnServer) -> Iterator[Pair]:
    """Two servers of the test's own."""
    with closing(Pair(own_redis)) as found:
        yield found


def warm(client: RedisClient, threads: int = 4) -> None:
    """Open several connections."""
    together = Barrier(threads)

    def use() -> None:
        together.wait(10)
        for _ in range(20):
            client.command("SET", "warm", "1", key="warm")

    crowd = [Thread(target=use) for _ in range(threads)]
    for thread in crowd:
        thread.start()
    for thread in crowd:
        thread.join()


@pytest.mark.parametrize("stale", [True, False], ids=["READONLY", "MASTERDOWN"])
def test_every_use_goes_on_at_the_new_master(pair: Pair, fresh: str, stale: bool) -> None:
    """Commands, many at once, locks and the locks of a unit: at once, over one client that was open before."""
    with closing(make_client(pair.url)) as client:
        warm(client)
        held = Tried()
        locks = UnitLocks(client, lease=None, fenced=True, replicas=0)
        locks.acquire([f"{fresh}-before"], "me", held)
        locks.release(held.held.values())
        pair.fail_over(stale=stale)
        tried = Tried()
        locks.acquire([f"{fresh}-a", f"{fresh}-b"], "me", tried)
        assert sorted(tried.held) == [f"{fresh}-a", f"{fresh}-b"]
        locks.release(tried.held.values())
        with Lock(client, fresh) as lock:
            assert lock.owned()
        assert client.command("SET", fresh, "1", key=fresh) in {b"OK", "OK"}
        answers = client.together([Call(fresh, ("SET", fresh, "2")), Call(fresh, ("GET", fresh))])
        assert answers == [b"OK", b"2"]
    with closing(make_client(pair.new_url)) as there:
        assert there.command("GET", fresh, key=fresh) == b"2"


def test_a_single_command_goes_on_at_the_new_master(pair: Pair, fresh: str) -> None:
    """The first one that is refused is run there, and connections that were idle are closed."""
    with closing(make_client(pair.url)) as client:
        warm(client)
        before = pair.name.connections
        pair.fail_over(stale=True)
        assert client.command("SET", fresh, "1", key=fresh) == b"OK"
        assert before > 1
        assert pair.name.connections == 1


def test_a_users_client_goes_on_at_the_new_master(pair: Pair, fresh: str) -> None:
    """Its pool's idle connections are closed as ours are."""
    import redis  # noqa: PLC0415 - an optional package

    theirs = redis.Redis.from_url(pair.url)
    client = client_of(theirs)
    warm(client)
    pair.fail_over(stale=True)
    assert client.command("SET", fresh, "1", key=fresh) == b"OK"
    theirs.connection_pool.disconnect()  # `close()` of redis 3.5 leaves the pool open


class _Scripted(ThreadingTCPServer):
    """A server that answers everything with OK, until it has a refusal to say."""

    daemon_threads = True
    refusal = b""


class _Answers(StreamRequestHandler):
    server: _Scripted

    def handle(self) -> None:
        """Read commands, each an array of strings, until the client leaves."""
        while head := self.rfile.readline():
            words = []
            for _ in range(int(head[1:])):
                size = int(self.rfile.readline()[1:])
                words.append(self.rfile.read(size + 2)[:-2])
            ours = words[0] not in {b"AUTH", b"HELLO", b"CLIENT", b"SELECT"}
            hello = b"%1\r\n$5\r\nproto\r\n:3\r\n" if words[0] == b"HELLO" else b"+OK\r\n"
            self.wfile.write(b"-" + self.server.refusal + b"\r\n" if ours and self.server.refusal else hello)


@pytest.fixture
def scripted() -> Iterator[_Scripted]:
    """Return a server that answers."""
    with _Scripted((LOOPBACK, 0), _Answers) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


@pytest.mark.parametrize(
    "refusal",
    [
        b"LOADING Redis is loading the dataset in memory",
        b"MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
        b"CLUSTERDOWN The cluster is down",
        b"READONLY You can't write against a read only replica.",
    ],
)
def test_each_refusal_of_an_old_master_leads_to_the_new_one(
    own_redis: OwnServer, scripted: _Scripted, fresh: str, refusal: bytes
) -> None:
    """Open connections are ended and the name is resolved again: the first refused command is run at the new master."""
    new = own_redis()
    name = TcpProxy(LOOPBACK, scripted.server_address[1])
    url = new.url.replace(str(new.port), str(name.port))
    with closing(name), closing(make_client(url)) as client:
        warm(client)
        scripted.refusal = refusal
        name.redirect(LOOPBACK, new.port)
        assert client.command("SET", fresh, "1", key=fresh) == b"OK"
        assert client.together([Call(fresh, ("GET", fresh))]) == [b"1"]
