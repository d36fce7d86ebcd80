"""TLS to Redis, with either generation of clients: who cannot prove to be the server that was asked for is told nothing."""

from collections.abc import Iterator
from contextlib import closing

import pytest

from oncemq.errors import RedisRefused, RedisUnavailable
from oncemq.redis.connect import make_client
from oncemq.redis.probe import prove
from oncemq.redis.tls import TlsFiles
from services.ports import LOOPBACK
from services.servers.redis import ask
from support.tls.cases import CASES, Case, Material, Serve, serving
from support.tls.servers import TlsRedis, TlsRedisCluster

pytestmark = [pytest.mark.server, pytest.mark.slow]

# Nodes name each other by their addresses, which is what their certificates must say.
CLUSTER_CASES = {
    "right": Case("address", "ours", LOOPBACK, ""),
    "wrong authority": Case("address", "other", LOOPBACK, "verify failed"),
    "other host's": Case("other", "ours", LOOPBACK, "match|mismatch|valid for"),
    "self-signed": Case("self-signed", "ours", LOOPBACK, "verify failed"),
}


@pytest.fixture(scope="module")
def material(tmp_path_factory: pytest.TempPathFactory) -> Material:
    """The certificates."""
    return Material(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def server(material: Material) -> Iterator[tuple[TlsRedis, Serve]]:
    """A Redis of this module's own, and a way to have it show another certificate."""
    yield from serving(TlsRedis, material)


@pytest.fixture(scope="module")
def cluster(material: Material) -> Iterator[tuple[TlsRedisCluster, Serve]]:
    """A Redis Cluster of this module's own, and a way to have it show another certificate."""
    yield from serving(TlsRedisCluster, material)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_server_must_prove_who_it_is(
    server: tuple[TlsRedis, Serve], material: Material, case: Case
) -> None:
    """Only the host that was asked for, vouched for by an authority that is trusted and in time, is talked to."""
    redis, serve = server
    serve(case.served)
    files = TlsFiles(ca=str(material.trusted[case.trusted])) if case.trusted else TlsFiles()
    with closing(make_client(redis.url_for(case.host), files=files)) as client:
        if not case.why:
            prove(client)
            assert client.command("SET", "a", "1", "EX", 60, key="a") == b"OK"
            return
        with pytest.raises(RedisRefused, match=case.why) as caught:
            prove(client)
    assert "TLS" in str(caught.value)
    assert f"{case.host}:{redis.settings.ports['tls']}" in str(caught.value)


@pytest.mark.parametrize("case", CLUSTER_CASES.values(), ids=CLUSTER_CASES)
def test_a_cluster_must_prove_who_it_is(
    cluster: tuple[TlsRedisCluster, Serve], material: Material, case: Case
) -> None:
    """The same; a node that does not is not even asked for its slots, which it would be with our password."""
    redis, serve = cluster
    serve(case.served)
    ask(redis.port, "CONFIG", "RESETSTAT", password=redis.settings.password)
    files = TlsFiles(ca=str(material.trusted[case.trusted]))
    with closing(make_client(redis.url_for(case.host), files=files)) as client:
        if not case.why:
            prove(client)
            assert client.command("SET", "a", "1", "EX", 60, key="a") == b"OK"
            assert "cmdstat_cluster|slots" in commands(redis)
            return
        # The original client does not say why no node could be asked.
        with pytest.raises((RedisRefused, RedisUnavailable), match=f"{case.why}|at least one reachable node"):
            prove(client)
    assert "cmdstat_cluster|slots" not in commands(redis)


def commands(redis: TlsRedis) -> str:
    """Return which commands the server was given."""
    return ask(redis.port, "INFO", "commandstats", password=redis.settings.password)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_plain_text_on_the_port_of_tls(server: tuple[TlsRedis, Serve]) -> None:
    """It is not what a TLS listener is told: nothing comes of it, but an error.

    The older client leaves the socket to the garbage collector.
    """
    redis, serve = server
    serve("right")
    with (
        closing(make_client(redis.url_for("localhost").replace("rediss", "redis"))) as client,
        pytest.raises(RedisUnavailable),
    ):
        prove(client)
