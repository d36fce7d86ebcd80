"""`unique_key: {also_seen_in: {redis_key: …}}`: keys that another deduplicator has written in Redis count as applied."""

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from typing import Any

import pytest
from sqlalchemy import Engine, func, select, text
from sqlalchemy.orm import Session

from oncemq.contracts.broker_queries import RedisStrategy
from oncemq.errors import ConfigError, RedisRefused, RedisUnavailable
from oncemq.ledger.records import processed
from oncemq.redis import RedisClient
from oncemq.redis.address import parse_address
from oncemq.redis.connect import make_client
from oncemq.testing.scopes import scope_for
from oncemq_strategies.unique_key.strategy import UniqueKey
from support.database.ledgers import BOOKED, ledger_engine
from support.servers import OwnServer
from support.units import UnitBench, build, orders

Mark = Callable[..., None]
MakeBench = Callable[..., UnitBench]


@pytest.fixture
def engine(sqlite_database: str) -> Iterator[Engine]:
    """A database with the ledger and a table of payments."""
    with ledger_engine(sqlite_database, BOOKED) as engine:
        yield engine


@pytest.fixture
def client(any_redis_url: str) -> Iterator[RedisClient]:
    """A client of the app's Redis: a server, and a cluster."""
    with closing(make_client(any_redis_url)) as client:
        yield client


@pytest.fixture
def mark(client: RedisClient, fresh: str) -> Mark:
    """Return a function that marks messages as RocketMQDedupListener does, for this test's application."""

    def write(*ids: str, state: str = "CONSUMED", tag: str = "") -> None:
        for each in ids:
            name = f"MSGDEDUP:{fresh}:orders:{tag}{each}"
            client.command("SET", name, state, "EX", 60, key=name)

    return write


def pay(order: dict[str, Any], session: Session) -> None:
    """Book a payment."""
    session.execute(text("INSERT INTO payments VALUES (:id)"), {"id": order["id"]})


def bench_for(
    engine: Engine,
    client: RedisClient,
    application: str,
    *templates: str,
    handler: Callable[..., Any] = pay,
    **more: Any,
) -> UnitBench:
    """Return a worker whose strategy looks at these keys."""
    names = [each.replace("$APP", application) for each in templates or ("MSGDEDUP:$APP:orders:{body.id}",)]
    options = {"also_seen_in": {"redis_key": names, "value": "CONSUMED", **more}}
    return UnitBench(
        engine, handler, build(UniqueKey, engine, application, options, redis=client), name=application
    )


@pytest.fixture
def make_bench(engine: Engine, client: RedisClient, fresh: str) -> MakeBench:
    """Return a function that makes a worker, on a server and on a cluster."""
    return partial(bench_for, engine, client, fresh)


def booked(engine: Engine) -> list[str]:
    """Return what was booked, also twice."""
    with engine.begin() as connection:
        return sorted(connection.execute(text("SELECT id FROM payments")).scalars())


def recorded(engine: Engine) -> int:
    """Return how many messages the ledger knows as applied."""
    with engine.begin() as connection:
        return connection.execute(select(func.count()).select_from(processed.TABLE)).scalar_one()


def reasons(bench: UnitBench) -> list[str]:
    """Return the reasons of the last unit's verdicts."""
    return [verdict.reason for verdict in bench.result.verdicts.values()]


def test_what_is_marked_there_is_a_duplicate(make_bench: MakeBench, mark: Mark, engine: Engine) -> None:
    """Neighbours in its unit run; a mark of a message that is still worked on does not count."""
    mark("old")
    mark("begun", state="CONSUMING")
    bench = make_bench()
    assert bench.run(*orders("old", "new", "begun", "old")) == [
        "duplicate",
        "applied",
        "applied",
        "duplicate",
    ]
    assert booked(engine) == ["begun", "new"]
    mark("older")
    bench.run(*orders("older"))
    (reason,) = reasons(bench)
    assert reason.startswith("seen in Redis as MSGDEDUP:")
    assert reason.endswith(":orders:older")


def test_it_stays_a_duplicate_when_the_mark_has_expired(
    make_bench: MakeBench, mark: Mark, client: RedisClient, fresh: str
) -> None:
    """The ledger has its own record then, which lives as long as others."""
    mark("old")
    bench = make_bench()
    assert bench.run(*orders("old")) == ["duplicate"]
    name = f"MSGDEDUP:{fresh}:orders:old"
    client.command("DEL", name, key=name)
    assert bench.run(*orders("old")) == ["duplicate"]


@pytest.mark.parametrize("spelling", ["OLD", "old ", "öld", "ol"])
def test_another_spelling_is_another_message(make_bench: MakeBench, mark: Mark, spelling: str) -> None:
    """Keys are compared byte by byte."""
    mark("old")
    assert make_bench().run(*orders(spelling, "old")) == ["applied", "duplicate"]


@pytest.mark.parametrize("value", [None, "", True, 1.5, {"a": 1}, ["old"], 2**5000, "\ud800"])
def test_a_message_that_can_have_no_key_there_runs(make_bench: MakeBench, mark: Mark, value: Any) -> None:
    """A value of another type, or none."""
    mark("old", "True", "1.5")
    bench = make_bench("MSGDEDUP:$APP:orders:{body.other}")
    delivery = bench.delivery({"id": "a", "key": "a"})
    delivery.payload["other"] = value
    assert bench.execute([delivery]) == ["applied"]


def test_a_number_is_spelled_in_digits(make_bench: MakeBench, mark: Mark) -> None:
    """As Java spells a Long."""
    mark("7")
    (order,) = orders("a", other=7)
    assert make_bench("MSGDEDUP:$APP:orders:{body.other}").run(order) == ["duplicate"]


def test_a_message_may_have_one_of_several_keys(make_bench: MakeBench, mark: Mark) -> None:
    """The listener's keys have the tag in them where a message has one."""
    mark("old", tag="paid:")
    mark("plain")
    bench = make_bench("MSGDEDUP:$APP:orders:{body.tag}:{body.id}", "MSGDEDUP:$APP:orders:{body.id}")
    (tagged,), (other,) = orders("old", tag="paid"), orders("new", tag="sent")
    assert bench.run(tagged, other, *orders("plain")) == ["duplicate", "applied", "duplicate"]


def test_braces_of_a_key_are_doubled(make_bench: MakeBench, client: RedisClient, fresh: str) -> None:
    """Such as those that keep an application's keys together in a cluster."""
    name = f"{{{fresh}}}:old"
    client.command("SET", name, "CONSUMED", "EX", 60, key=name)
    assert make_bench("{{$APP}}:{body.id}").run(*orders("old", "new")) == ["duplicate", "applied"]


def test_values_may_be_several(make_bench: MakeBench, mark: Mark) -> None:
    """Also numbers, as programs write that keep a flag."""
    mark("a", state="1")
    mark("b", state="done")
    mark("c", state="0")
    assert make_bench(value=[1, "done"]).run(*orders("a", "b", "c")) == [
        "duplicate",
        "duplicate",
        "applied",
    ]


def test_a_handler_that_fails_leaves_no_record(make_bench: MakeBench, mark: Mark) -> None:
    """A neighbour that was seen there keeps its own."""
    mark("old")
    fails = [True]

    def handle(_order: dict[str, Any], _session: Session) -> None:
        if fails[0]:
            raise ValueError

    bench = make_bench(handler=handle)
    assert bench.run(*orders("old", "new")) == ["duplicate", "retry"]
    fails[0] = False
    assert bench.run(*orders("old", "new")) == ["duplicate", "applied"]


def test_a_key_of_another_type_stops_its_message_alone(
    make_bench: MakeBench, client: RedisClient, engine: Engine, fresh: str
) -> None:
    """Whether it was applied is not known: it comes again, has no record meanwhile, and neighbours run."""
    name = f"MSGDEDUP:{fresh}:orders:odd"
    client.command("HSET", name, "state", "CONSUMED", key=name)
    bench = make_bench()
    assert bench.run(*orders("odd", "new")) == ["retry", "applied"]
    assert recorded(engine) == 1
    assert any("WRONGTYPE" in reason for reason in reasons(bench))
    client.command("DEL", name, key=name)
    assert bench.run(*orders("odd", "new")) == ["applied", "duplicate"]
    assert booked(engine) == ["new", "odd"]


def test_a_unit_asks_once(
    make_bench: MakeBench, mark: Mark, client: RedisClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One round trip for all its messages, each key once."""
    mark("m7")
    bench = make_bench()
    asked: list[list[Any]] = []
    real = type(client).together
    monkeypatch.setattr(
        type(client),
        "together",
        lambda self, calls: asked.append([call.key for call in calls]) or real(self, calls),
    )
    bench.run(*orders(*(f"m{number}" for number in range(100)), "m1", "m2"))
    (keys,) = asked
    assert len(keys) == len(set(keys)) == 100


def test_the_keys_of_other_programs_are_left_alone(
    make_bench: MakeBench, mark: Mark, client: RedisClient, fresh: str
) -> None:
    """They are read only, and nothing is written beside them."""
    mark("old")
    name = f"MSGDEDUP:{fresh}:orders:old"
    make_bench().run(*orders("old", "new"))
    assert client.command("GET", name, key=name) == b"CONSUMED"
    assert client.command("TTL", name, key=name) > 0
    absent = f"MSGDEDUP:{fresh}:orders:new"
    assert client.command("EXISTS", absent, key=absent) == 0


def test_while_redis_is_away_no_message_runs(engine: Engine, own_redis: OwnServer, fresh: str) -> None:
    """None counts as not seen: the unit goes back whole, without an attempt, also a message that comes alone."""
    server = own_redis()
    with closing(make_client(server.url)) as client:
        bench = bench_for(engine, client, fresh)
        assert bench.run(*orders("first")) == ["applied"]
        server.kill()
        for ids in (("a", "b", "first"), ("a",), ("first",)):
            assert bench.run(*orders(*ids)) == ["returned"] * len(ids)
            assert isinstance(bench.result.trouble.__cause__, RedisUnavailable)  # type: ignore[union-attr]
        assert booked(engine) == ["first"]
        server.start()
        name = f"MSGDEDUP:{fresh}:orders:a"
        client.command("SET", name, "CONSUMED", key=name)
        assert bench.run(*orders("a", "b", "first")) == ["duplicate", "applied", "duplicate"]
    assert booked(engine) == ["b", "first"]


@contextmanager
def user(url: str, name: str, rules: str) -> Iterator[RedisClient]:
    """Lend a client that may do only this."""
    host, port = parse_address(url).places[0]
    with closing(make_client(url)) as admin:
        given = ("resetkeys", "resetchannels", "-@all", "+ping", *rules.split())
        admin.command("ACL", "SETUSER", name, "on", ">secret", *given, key="")
        with closing(make_client(f"redis://{name}:secret@{host}:{port}/0")) as client:
            yield client
        admin.command("ACL", "DELUSER", name, key="")


def test_a_user_who_may_not_read_them_is_no_answer(redis_url: str, engine: Engine, fresh: str) -> None:
    """The consumer pauses with Redis' words; no message is charged."""
    with user(redis_url, fresh, "~other:* +@all") as client:
        bench = bench_for(engine, client, fresh)
        assert bench.run(*orders("a", "b")) == ["returned", "returned"]
        assert isinstance(bench.result.trouble.__cause__, RedisRefused)  # type: ignore[union-attr]
    assert recorded(engine) == 0


def test_one_key_that_may_not_be_read_stops_its_message_alone(
    redis_url: str, engine: Engine, fresh: str
) -> None:
    """What a message says must not pause the others."""
    with user(redis_url, fresh, f"~MSGDEDUP:{fresh}:o* +get") as client:
        bench = bench_for(engine, client, fresh, "MSGDEDUP:$APP:{body.id}")
        assert bench.run(*orders("o1", "secret", "o2")) == ["applied", "retry", "applied"]


@pytest.mark.parametrize(("keys", "lacks"), [("", True), ("~MSGDEDUP:points:*", False)])
def test_check_names_the_right_that_is_missing(redis_url: str, fresh: str, keys: str, *, lacks: bool) -> None:
    """With the command that grants it, and no more than that."""
    options = {"also_seen_in": {"redis_key": "MSGDEDUP:points:{body.id}", "value": "CONSUMED"}}
    with user(redis_url, fresh, f"{keys} +get +acl") as client:
        strategy = UniqueKey.build(options, scope_for("shop.points", None, dialect="sqlite", redis=client))
        assert isinstance(strategy, RedisStrategy)
        said = [str(error) for error in strategy.missing_in_redis()]
    assert bool(said) is lacks
    assert all(f"ACL SETUSER {fresh} ~MSGDEDUP:points:* +get" in each for each in said)


def test_without_the_option_nothing_asks_redis() -> None:
    """`check --connect` tries nothing there, and a unit has no further step."""
    strategy = UniqueKey.build({}, scope_for("shop.points", None, dialect="sqlite"))
    assert not isinstance(strategy, RedisStrategy)
    assert type(strategy).reserve is UniqueKey.reserve


KEY = {"redis_key": "dedup:{body.id}"}


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ({"redis_key": "dedup:{body.id}", "value": "1", "table": "t"}, "table is about a table"),
        (KEY, "without `value`, a key of a message that still runs, or has failed"),
        ({**KEY, "value": True}, "value must be a text or a list of texts, not True"),
        ({**KEY, "value": []}, "value must be a text or a list of texts, not []"),
        ({"redis_key": "dedup", "value": "1"}, "'dedup' is one key for all messages"),
        ({"redis_key": "dedup:{body..id}", "value": "1"}, 'write it like "dedup:{body.order_id}"'),
        ({"redis_key": "dedup:{body.id", "value": "1"}, 'write it like "dedup:{body.order_id}"'),
        ({"redis_key": 7, "value": "1"}, "redis_key must be a list of texts"),
        ({"value": "1"}, "redis_key must be a list of texts"),
        ({"redis_kye": "x", "value": "1"}, "did you mean 'redis_key'?"),
    ],
)
def test_a_wrong_option_is_refused(option: dict[str, Any], words: str) -> None:
    """In words that name the option."""
    scope = scope_for("shop.points", None, dialect="sqlite", redis=make_client("redis://localhost:1/0"))
    with pytest.raises(ConfigError) as error:
        UniqueKey.build({"also_seen_in": option}, scope)
    assert words in str(error.value)
    assert "unique_key.also_seen_in" in str(error.value)


def test_an_app_without_redis_is_refused() -> None:
    """In words that say what to write."""
    scope = scope_for("shop.points", None, dialect="sqlite")
    with pytest.raises(ConfigError, match="redis_key needs Redis"):
        UniqueKey.build({"also_seen_in": {**KEY, "value": "1"}}, scope)
