"""`redis_lock`: units run while their messages' locks are held, in one round trip, and never wait for one."""

from datetime import timedelta
from threading import Event, Thread

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.orm import Session

from oncemq import FencingToken
from oncemq.engine.transaction.connection_watch import install
from oncemq.errors import ConfigError, RedisUnavailable
from oncemq.ledger import schema
from oncemq.ledger.database.engine import make_engine
from oncemq.redis.connect import make_client
from oncemq_strategies.redis_lock.strategy import RedisLock
from oncemq_strategies.redis_lock.unit_locks import UnitLocks
from oncemq_strategies.redis_lock.unit_scripts import RELEASE_MANY
from oncemq_strategies.redisson import FencedLock, Lock
from oncemq_strategies.redisson.lease_keeper import Keeper
from oncemq_strategies.redisson.names import token_of
from oncemq_strategies.redisson.survey.locks import all_held, force_release, held_by
from oncemq_strategies.unique_key.strategy import UniqueKey
from services.waiting import wait_until
from support.units import UnitBench, build, orders

NOT_AT_ALL = timedelta(0)


@pytest.fixture
def engine(sqlite_database):
    """A database with the ledger and a table of rides."""
    engine = make_engine(sqlite_database)
    schema.upgrade(engine)
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE rides (ride VARCHAR(40) PRIMARY KEY, n INTEGER, fence BIGINT)"))
        connection.execute(text("INSERT INTO rides VALUES ('k-a', 0, NULL), ('k-b', 0, NULL)"))
    yield engine
    engine.dispose()


def guarded(engine, client, fresh, handler, **options):
    """Return a bench with a lock and a memory."""
    lock = build(RedisLock, engine, "c", {"name": f"{fresh}-{{key}}", **options}, redis=client)
    return UnitBench(engine, handler, lock, build(UniqueKey, engine, "c"))


def count(order: dict, session: Session) -> None:
    """Count a ride's messages."""
    session.execute(text("UPDATE rides SET n = n + 1 WHERE ride = :key"), {"key": order["key"]})


def rides(engine):
    """Return what the table says."""
    with engine.begin() as connection:
        return {row[0]: (row[1], row[2]) for row in connection.execute(text("SELECT * FROM rides"))}


def test_a_message_runs_under_its_lock(engine, client, rival, fresh):
    """While its handler runs no one else has it; afterwards it is free."""
    seen = []

    def handler(order: dict) -> None:
        seen.append(held_by(rival, f"{fresh}-{order['key']}"))

    bench = guarded(engine, client, fresh, handler)
    assert bench.run(*orders("a", "b")) == ["applied", "applied"]
    assert all(held is not None and held.holds == 1 and 25 < held.ends_in <= 30 for held in seen)
    assert list(all_held(rival, f"{fresh}*")) == []


def test_a_taken_lock_defers_its_message_alone(engine, client, rival, fresh):
    """Its neighbours run; nothing was waited for."""
    bench = guarded(engine, client, fresh, count)
    with Lock(rival, f"{fresh}-k-a"):
        assert bench.run(*orders("a", "b")) == ["deferred", "applied"]
        delays = [verdict.delay for verdict in bench.result.verdicts.values() if verdict.delay is not None]
        assert [timedelta(0) < delay <= timedelta(seconds=1.5) for delay in delays] == [True]
    assert bench.run(*orders("a")) == ["applied"]
    assert rides(engine)["k-a"][0] == 1


def test_a_deferred_message_is_woken_by_the_release(engine, client, rival, fresh):
    """The key's sleep ends with the message, once the subscription stands also by itself."""
    bench = guarded(engine, client, fresh, count)
    lock = Lock(rival, f"{fresh}-k-a")
    assert lock.acquire(NOT_AT_ALL)
    bench.run(*orders("a"))
    assert wait_until(lambda: bench.resumed == ["k-a"], seconds=5)
    bench.run(*orders("a"))
    lock.release()
    assert wait_until(lambda: bench.resumed == ["k-a"] * 2, seconds=1)


def test_a_release_that_redis_did_not_hear_is_said_again(engine, client, rival, fresh, monkeypatch):
    """Else no one would get the lock before its lease ends, not even the next unit of the same worker."""
    monkeypatch.setattr("oncemq_strategies.redisson.pending_releases._AGAIN", 0.1)
    real, hears = client.together, Event()

    def together(calls):
        if calls[0].script is RELEASE_MANY and not hears.is_set():
            return [RedisUnavailable("down", sent=False)] * len(calls)
        return real(calls)

    monkeypatch.setattr(client, "together", together)
    bench = guarded(engine, client, fresh, count)
    assert bench.run(*orders("a")) == ["applied"]
    assert [str(failure) for failure in bench.failures] == ["down"]
    assert held_by(rival, f"{fresh}-k-a") is not None
    hears.set()
    lock = Lock(rival, f"{fresh}-k-a")
    assert lock.acquire(timedelta(seconds=10))
    lock.release()


def test_messages_of_one_lock_run_together(engine, client, fresh):
    """A unit has a lock once, however many of its messages need it."""
    bench = guarded(engine, client, fresh, count)
    assert bench.run(*orders("1", "2", "3", key="k-a")) == ["applied"] * 3
    assert rides(engine)["k-a"][0] == 3


def test_all_locks_of_a_unit_take_one_round_trip(engine, client, fresh, monkeypatch):
    """One to acquire, one to ask before the commit, one to release, however many there are."""
    bench = guarded(engine, client, fresh, lambda order: None)
    bench.run(*orders("warm"))
    trips = []
    real = type(client).together
    monkeypatch.setattr(
        type(client), "together", lambda self, calls: trips.append(len(calls)) or real(self, calls)
    )
    bench.run(*orders(*(f"m{n}" for n in range(100))))
    assert trips == ([100, 100, 100] if client.clustered else [2, 2, 2])


def test_a_lock_that_was_lost_rolls_its_message_back(engine, client, fresh, monkeypatch):
    """It is tried again with a new lock; its neighbour commits."""

    def handler(order: dict, session: Session) -> None:
        count(order, session)
        if order["id"] == "a" and not lost:
            lost.append(client.command("DEL", f"{fresh}-k-a", key=f"{fresh}-k-a"))
            assert wait_until(lambda: told, seconds=2)

    lost, told = [], []
    keeper = client.shared(Keeper)
    lose = keeper.lose
    monkeypatch.setattr(keeper, "lose", lambda holding: (lose(holding), told.append(1)))
    lock = build(RedisLock, engine, "c", {"name": f"{fresh}-{{key}}"}, redis=client)
    lock._locks._lease = 300
    bench = UnitBench(engine, handler, lock, build(UniqueKey, engine, "c"))
    assert bench.run(*orders("a", "b")) == ["deferred", "applied"]
    assert rides(engine) == {"k-a": (0, None), "k-b": (1, None)}
    assert bench.run(*orders("a")) == ["applied"]


def test_a_paused_holder_writes_nothing_behind_the_fence(engine, client, rival, fresh):
    """A later holder has been there; the row refuses the lower token, whatever the paused one believes."""
    name = f"{fresh}-k-a"

    def handler(order: dict, session: Session, token: FencingToken) -> None:
        count(order, session)
        if not later:
            force_release(rival, name)
            with FencedLock(rival, name) as lock:
                later.append(lock.token)
                session.execute(text("UPDATE rides SET fence = :t WHERE ride = 'k-a'"), {"t": lock.token})
            assert token < later[0]

    later = []
    fence = {"table": "rides", "key": "ride", "column": "fence"}
    bench = guarded(engine, client, fresh, handler, fence=fence)
    assert bench.run(*orders("a", "b")) == ["deferred", "applied"]
    assert rides(engine)["k-a"] == (0, 1)
    assert bench.run(*orders("a")) == ["applied"]
    assert rides(engine)["k-a"][1] > later[0]


def test_a_late_holder_is_refused_while_the_new_one_still_runs(
    postgresql_database, client, rival, fresh, monkeypatch
):
    """Read before the pause, written after it: the row refuses at once, though the new holder has not committed."""
    # A replica that took over may say "held" to both: the fence must do without Redis.
    monkeypatch.setattr(UnitLocks, "confirm", lambda *_: None)
    engine = make_engine(postgresql_database)
    install(engine)
    schema.upgrade(engine)
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE rides (ride VARCHAR(40) PRIMARY KEY, n INTEGER, fence BIGINT)"))
        connection.execute(text("INSERT INTO rides VALUES ('k-a', 0, NULL)"))
    fence = {"table": "rides", "key": "ride", "column": "fence"}
    outcomes = []

    def read_and_write(between):
        def handler(order: dict, session: Session) -> None:
            n = session.execute(text("SELECT n FROM rides WHERE ride = 'k-a'")).scalar_one()
            between()
            session.execute(text("UPDATE rides SET n = :n WHERE ride = 'k-a'"), {"n": n + 1})

        return handler

    def pause() -> None:
        """Lose the lock, and let a new holder begin, which lets this one go on before it writes."""
        if not outcomes:
            outcomes.append("paused")
            force_release(rival, f"{fresh}-k-a")
            thread.start()
            assert read.wait(20)

    def go_on() -> None:
        read.set()
        assert refused.wait(20)

    late = guarded(engine, client, fresh, read_and_write(pause), fence=fence)
    new = guarded(engine, rival, fresh, read_and_write(go_on), fence=fence)
    read, refused = Event(), Event()
    thread = Thread(target=lambda: outcomes.append(new.run(*orders("a"))))
    try:
        assert late.run(*orders("a")) == ["deferred"]
        assert outcomes == ["paused"], "it was refused only after the new holder's commit"
        refused.set()
        thread.join(20)
        assert outcomes[1:] == [["applied"]]
        assert rides(engine)["k-a"] == (1, 2)
        assert late.run(*orders("a")) == ["applied"]
        assert rides(engine)["k-a"] == (2, 3)
    finally:
        refused.set()
        engine.dispose()


def test_a_locked_fence_puts_its_message_off_alone(postgresql_database, client, fresh):
    """A late holder that has written and not committed keeps its row; neighbours run, and no row is waited for."""
    engine = make_engine(postgresql_database)
    install(engine)
    schema.upgrade(engine)
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE rides (ride VARCHAR(40) PRIMARY KEY, n INTEGER, fence BIGINT)"))
        connection.execute(text("INSERT INTO rides VALUES ('k-a', 0, NULL), ('k-b', 0, NULL)"))
    bench = guarded(engine, client, fresh, count, fence={"table": "rides", "key": "ride", "column": "fence"})
    try:
        with engine.begin() as connection:
            connection.execute(text("UPDATE rides SET n = 7 WHERE ride = 'k-a'"))
            assert bench.run(*orders("a", "b")) == ["deferred", "applied"]
        assert bench.run(*orders("a")) == ["applied"]
        assert rides(engine)["k-a"][0] == 8
    finally:
        engine.dispose()


def test_the_commit_asks_redis_whether_the_lock_is_held(engine, client, rival, fresh):
    """The lease has a long time to go by the local clock; Redis has forgotten it, and the effect is rolled back."""

    def handler(order: dict, session: Session) -> None:
        count(order, session)
        if not forgotten:
            rival.command("DEL", f"{fresh}-k-a", key=f"{fresh}-k-a")
            forgotten.append(True)

    forgotten = []
    bench = guarded(engine, client, fresh, handler)
    assert bench.run(*orders("a", "b")) == ["deferred", "applied"]
    assert rides(engine) == {"k-a": (0, None), "k-b": (1, None)}
    assert bench.run(*orders("a")) == ["applied"]


def test_numbers_that_redis_has_forgotten_go_on_above_the_fence(engine, client, fresh):
    """Else a key would are blocked until as many locks were taken as there ever were."""
    fence = {"table": "rides", "key": "ride", "column": "fence"}
    bench = guarded(engine, client, fresh, count, fence=fence)
    assert bench.run(*orders("a")) == ["applied"]
    with engine.begin() as connection:
        connection.execute(text("UPDATE rides SET fence = 100000 WHERE ride = 'k-a'"))
    name = token_of(f"{fresh}-k-a")
    client.command("DEL", name, key=name)
    again = {"id": "again", "key": "k-a"}
    assert bench.run(again) == ["deferred"]
    assert bench.run(again) == ["applied"]
    assert rides(engine)["k-a"] == (2, 100001)


def test_a_fence_without_a_row_is_told(engine, client, fresh):
    """The handler must leave a row behind that a later holder can look at."""
    fence = {"table": "rides", "key": "ride", "column": "fence"}
    bench = guarded(engine, client, fresh, lambda order: None, fence=fence)
    assert bench.run({"id": "x", "key": "nowhere"}) == ["retry"]


def test_a_name_may_hold_more_than_the_key(engine, client, rival, fresh):
    """Also on a second try, when the body has to be read again."""

    def handler(order: dict) -> None:
        seen.append(held_by(rival, f"{{{fresh}}}7-k-a") is not None)

    seen = []
    lock = build(RedisLock, engine, "c", {"name": f"{{{{{fresh}}}}}{{body.shop}}-{{key}}"}, redis=client)
    bench = UnitBench(engine, handler, lock, build(UniqueKey, engine, "c"))
    delivery = bench.delivery({"id": "a", "key": "k-a", "shop": 7})
    delivery.payload = None
    assert bench.execute([delivery]) == ["applied"]
    assert seen == [True]


def test_a_message_without_what_its_lock_needs_is_a_dead_letter(engine, client, fresh):
    """No lock is invented."""
    lock = build(RedisLock, engine, "c", {"name": f"{fresh}-{{body.shop}}"}, redis=client)
    bench = UnitBench(engine, lambda order: None, lock, build(UniqueKey, engine, "c"))
    assert bench.run(*orders("a")) == ["rejected"]
    assert bench.errors() == ["MissingKey"]


def test_a_key_of_another_type_is_charged_to_its_message(engine, client, fresh):
    """Someone uses the lock's name for something else; the neighbours run."""
    client.command("SET", f"{fresh}-k-a", "1", "EX", 60, key=f"{fresh}-k-a")
    bench = guarded(engine, client, fresh, count)
    assert bench.run(*orders("a", "b")) == ["retry", "applied"]


def test_without_redis_nothing_runs_and_no_message_is_charged(engine, fresh):
    """The consumer pauses and says why."""
    bench = guarded(engine, make_client("redis://127.0.0.1:1"), fresh, count)
    assert bench.run(*orders("a")) == ["returned"]
    assert "127.0.0.1:1" in str(bench.result.trouble)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "name must be a text"),
        ({"name": "x-{}"}, "braces may contain"),
        ({"name": "x-{nothing.x}"}, "nothing"),
        ({"name": "x-{key!r}"}, "braces may contain"),
        ({"name": "x-{key"}, "expected"),
        ({"name": "x", "lease": "10ms"}, "below a second"),
        ({"name": "x", "replicas": -1}, "replicas"),
        ({"name": "x", "fence": {"table": "t", "key": "k"}}, "column"),
        ({"name": "x", "fenced": False, "fence": {"table": "t", "key": "k", "column": "c"}}, "numbers"),
        ({"name": "x", "ttl": 3}, "ttl"),
    ],
)
def test_options_that_cannot_work_are_refused(scope, options, words):
    """The error says which and what to write."""
    with pytest.raises(ConfigError, match=words):
        RedisLock.build(options, scope)


def found(strategy, facts):
    """Return what `check` says, as one text."""
    return " | ".join(map(str, strategy.check(facts)))


def test_a_lock_needs_redis(scope, facts):
    """What to write is said."""
    assert 'redis: {url: "redis://' in found(RedisLock.build({"name": "x-{key}"}, scope), facts())


def test_a_lease_that_is_not_renewed_must_outlast_the_handler(engine, facts):
    """Without a limit, or below it, another could have the lock meanwhile."""
    client = make_client("redis://127.0.0.1:1")
    lock = build(RedisLock, engine, "c", {"name": "x-{key}", "lease": "30s"}, redis=client)
    assert "nothing limits" in found(lock, facts())
    assert "may take 1m" in found(lock, facts(hard_limit=timedelta(seconds=60)))
    assert found(lock, facts(hard_limit=timedelta(seconds=20))) == ""
    watched = build(RedisLock, engine, "c", {"name": "x-{key}"}, redis=client)
    assert found(watched, facts()) == ""


def test_a_fence_must_be_a_column_of_whole_numbers(engine, facts):
    """It is looked up at start."""
    client = make_client("redis://127.0.0.1:1")
    for fence, words in (
        ({"table": "rides", "key": "ride", "column": "fence"}, ""),
        ({"table": "rides", "key": "ride", "column": "ride"}, "whole numbers"),
        ({"table": "rides", "key": "n", "column": "fence"}, "not unique"),
        ({"table": "roads", "key": "ride", "column": "fence"}, "no table"),
    ):
        lock = build(RedisLock, engine, "c", {"name": "x-{key}", "fence": fence}, redis=client)
        assert words in found(lock, facts())
        assert bool(words) == bool(found(lock, facts()))


def test_locks_can_be_looked_at_and_taken_away(engine, client, rival, fresh):
    """For `oncemq inspect` and `oncemq locks`."""
    lock = build(RedisLock, engine, "c", {"name": f"{fresh}-{{key}}"}, redis=client)
    with create_engine("sqlite://").connect() as connection, Lock(rival, f"{fresh}-k") as held:
        assert held.owner in lock.inspect(connection, "k")[f"lock {fresh}-k"]
        assert [lock.name for lock in all_held(client, f"{fresh}*")] == [f"{fresh}-k"]
        assert force_release(client, f"{fresh}-k")
        assert lock.inspect(connection, "k") == {f"lock {fresh}-k": "free"}
        assert not force_release(client, f"{fresh}-k")
        assert Lock(client, f"{fresh}-k").acquire(NOT_AT_ALL)
        held._keeper.drop(held._holding())
        held.release = lambda: None
