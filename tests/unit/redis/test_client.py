"""Commands and scripts on real servers: one round trip, sent once, failures told."""

import os
from contextlib import closing
from typing import Any

import pytest

from oncemq.errors import RedisRefused, RedisUnavailable
from oncemq.redis import RedisClient
from oncemq.redis.call import Call, Script
from oncemq.redis.connect import client_of, make_client
from oncemq.redis.probe import startup_warnings
from oncemq.redis.routes import slot_of
from oncemq.testing.tcp_proxy import TcpProxy
from services.waiting import wait_until
from support.servers import OwnServer

ON_A_CLUSTER = pytest.mark.parametrize(
    "any_redis_url",
    [pytest.param("redis_cluster_url", marks=pytest.mark.server, id="cluster")],
    indirect=True,
)


def test_a_command_is_answered(client: RedisClient, fresh: str) -> None:
    """Bytes come back as bytes, nothing as None."""
    client.command("SET", fresh, "ü", "EX", 60, key=fresh)
    assert client.command("GET", fresh, key=fresh) == "ü".encode()
    assert client.command("GET", f"{fresh}-not", key=f"{fresh}-not") is None


def test_a_script_that_no_server_knows_yet_is_run(client: RedisClient, fresh: str) -> None:
    """Its text is sent where its digest is not known."""
    script = Script(f"return ARGV[1] .. '{fresh}'")
    assert client.run(script, [fresh], ["x"]) == f"x{fresh}".encode()
    assert client.run(script, [fresh], ["y"]) == f"y{fresh}".encode()


def test_many_calls_are_answered_in_their_order(client: RedisClient, fresh: str) -> None:
    """Also when their keys live on different servers and the script is new to all of them."""
    script = Script(f"return ARGV[1] -- {fresh}")
    answers = client.together([Call.of(script, [f"{fresh}-{n}"], [n]) for n in range(100)])
    assert answers == [str(n).encode() for n in range(100)]


def test_what_one_call_does_wrong_its_neighbours_do_not_feel(client: RedisClient, fresh: str) -> None:
    """A refusal stands in the place of its answer."""
    good, bad = Call(fresh, ("SET", fresh, "1", "EX", 60)), Call(fresh, ("HGET", fresh, "field"))
    answers = client.together([good, bad, Call(fresh, ("GET", fresh))])
    assert (answers[0], answers[2]) == (b"OK", b"1")
    assert isinstance(answers[1], RedisRefused)
    assert "WRONGTYPE" not in str(answers[0])


def test_a_refusal_is_raised_for_a_single_command(client: RedisClient, fresh: str) -> None:
    """The text is the server's own."""
    with pytest.raises(RedisRefused, match="wrong number of arguments"):
        client.command("GET", key=fresh)


@pytest.mark.parametrize(
    ("key", "slot"), [("123456789", 0x31C3), ("foo{hash_tag}", 2515), ("{}foo", 9500), ("a{b}{c}", 3300)]
)
def test_slots_are_those_of_the_cluster_specification(key: str, slot: int) -> None:
    """The first non-empty tag decides."""
    assert slot_of(key) == slot


@ON_A_CLUSTER
def test_the_servers_agree_about_slots(client: RedisClient, fresh: str) -> None:
    """What we compute is what CLUSTER KEYSLOT answers."""
    for key in (fresh, f"{{{fresh}}}:x", f"x{{}}{fresh}", f"a{{b}}{fresh}{{c}}", f"ä{fresh}"):
        assert client.at(client.routes.masters()[0], "CLUSTER", "KEYSLOT", key) == slot_of(key)


def test_a_server_that_is_away_is_unavailable(fresh: str) -> None:
    """Nothing was sent, so nothing can have been applied."""
    client = make_client("redis://127.0.0.1:1")
    with pytest.raises(RedisUnavailable) as caught:
        client.command("GET", fresh, key=fresh)
    assert not caught.value.sent


def test_a_cluster_that_is_away_is_unavailable(fresh: str) -> None:
    """Opening it fails with the same error, and is tried again with the next command."""
    client = make_client("redis+cluster://127.0.0.1:1")
    for _ in range(2):
        with pytest.raises(RedisUnavailable):
            client.command("GET", fresh, key=fresh)


def test_a_wrong_password_is_told(redis_url: str, fresh: str) -> None:
    """The text names the server and no password."""
    client = make_client(redis_url, password="not-this-one")
    with pytest.raises((RedisRefused, RedisUnavailable)) as caught:
        client.command("GET", fresh, key=fresh)
    assert "not-this-one" not in str(caught.value)


def test_a_command_whose_answer_is_lost_is_not_sent_again(redis_url: str, fresh: str) -> None:
    """It was applied once, and the failure says that it may have been."""
    server = redis_url.rpartition("@")[2].partition("/")[0].rpartition(":")
    with TcpProxy(server[0], int(server[2])) as proxy:
        through = redis_url.replace(f"{server[0]}:{server[2]}", proxy.address)
        with closing(make_client(through)) as client:
            client.command("SET", fresh, "0", "EX", 60, key=fresh)
            proxy.lose_answers()
            with pytest.raises(RedisUnavailable) as caught:
                client.command("INCR", fresh, key=fresh)
    assert caught.value.sent
    with closing(make_client(redis_url)) as direct:
        assert direct.command("GET", fresh, key=fresh) == b"1"


def test_a_connection_that_was_closed_while_idle_is_not_used(
    client: RedisClient, any_redis_url: str, fresh: str
) -> None:
    """The next command goes over a new one, and does not fail."""
    number = client.command("CLIENT", "ID", key=fresh)
    with closing(make_client(any_redis_url)) as other:
        other.command("CLIENT", "KILL", "ID", number, key=fresh)
    assert client.command("CLIENT", "ID", key=fresh) > number


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_process_has_connections_of_its_own(client: RedisClient, fresh: str) -> None:
    """It must not read its parent's answers."""
    number = client.command("CLIENT", "ID", key=fresh)
    source, target = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.write(target, str(client.command("CLIENT", "ID", key=fresh)).encode())
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    os.close(target)
    with os.fdopen(source) as answer:
        assert int(answer.read()) > number
    assert client.command("CLIENT", "ID", key=fresh) == number


def test_a_restarted_server_is_found_again(own_redis: OwnServer, fresh: str) -> None:
    """Connections from before the restart cost no command."""
    server = own_redis()
    client = make_client(server.url)
    client.command("SET", fresh, "1", key=fresh)
    server.restart()
    assert client.command("PING", key=fresh) in {b"PONG", b"1"}
    client.close()


def test_a_cluster_goes_on_when_a_master_dies(own_redis_cluster: OwnServer, fresh: str) -> None:
    """Its replica takes over the slots; until then calls fail at once or within their time-out."""
    cluster: Any = own_redis_cluster()
    client = make_client(cluster.url)
    place = client.routes.place(slot_of(fresh))
    cluster.kill_node(int(place.rpartition(":")[2]))
    again = Call(fresh, ("SET", fresh, "1"))
    assert wait_until(lambda: client.together([again]) == [b"OK"], seconds=30)
    assert client.command("GET", fresh, key=fresh) == b"1"
    assert client.routes.place(slot_of(fresh)) != place
    client.close()


def test_a_client_of_the_users_own_is_used_and_left_open(redis_url: str, fresh: str) -> None:
    """Closing ours does not close theirs."""
    import redis  # noqa: PLC0415 - the optional package

    theirs = redis.Redis.from_url(redis_url, decode_responses=True)
    ours = client_of(theirs)
    assert ours.command("SET", fresh, "1", "EX", 60, key=fresh) in {"OK", b"OK"}
    ours.close()
    assert theirs.get(fresh) == "1"
    theirs.connection_pool.disconnect()  # `close()` of redis 3.5 leaves the pool open


def test_what_is_no_client_is_refused() -> None:
    """The error names what was given."""
    with pytest.raises(TypeError, match="object is not a client"):
        _ = client_of(object()).routes


def test_a_redis_that_evicts_is_warned_of(own_redis: OwnServer) -> None:
    """With what to set; one that is away is said to be away."""
    server = own_redis()
    with closing(make_client(server.url)) as client:
        assert startup_warnings(client) == []
        client.command("CONFIG", "SET", "maxmemory-policy", "allkeys-lru", key="")
        assert ["noeviction" in warning for warning in startup_warnings(client)] == [True]
        server.kill()
        assert ["does not answer" in warning for warning in startup_warnings(client)] == [True]
