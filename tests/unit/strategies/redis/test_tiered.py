"""`tiered`: copies are found before the database, which alone decides what is new."""

import sqlite3
from contextlib import closing
from datetime import datetime, timedelta

import pytest
from sqlalchemy import event, text
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session

from oncemq.common.problems import Severity
from oncemq.errors import ConfigError
from oncemq.ledger import schema
from oncemq.redis.routes import slot_of
from oncemq_strategies.common.redis_marks import key_in_redis
from oncemq_strategies.tiered.strategy import Tiered
from support.database.ledgers import BOOKED, ledger_engine
from support.units import UnitBench, build, orders

SHARED = {"bloom": {"shared": True, "expected": 1000}}
COMBINATIONS = pytest.mark.parametrize(
    "options",
    [{}, {"bloom": True}, {"bloom": {"expected": 10}, "redis": False}, SHARED, {**SHARED, "redis": False}],
    ids=["redis", "both", "bloom", "shared", "shared-bloom"],
)


@pytest.fixture
def engine(sqlite_database):
    """A database with the ledger and a table of payments."""
    with ledger_engine(sqlite_database, BOOKED) as engine:
        yield engine


def pay(order: dict, session: Session) -> None:
    """Book a payment."""
    session.execute(text("INSERT INTO payments VALUES (:id)"), {"id": order["key"]})


def payments(engine):
    """Return what was booked."""
    with engine.begin() as connection:
        return sorted(connection.execute(text("SELECT id FROM payments")).scalars())


@pytest.fixture
def worker(engine, fresh):
    """Return a function that makes a worker of the one consumer."""

    def make(strategy, handler=pay, name=fresh):
        return UnitBench(engine, handler, strategy, name=name)

    return make


@pytest.fixture
def tier(engine, client, fresh):
    """Return a function that makes the strategy of one consumer, each time as another process would."""

    def make(**options):
        return build(Tiered, engine, options.pop("consumer", fresh), options, redis=client)

    return make


@pytest.fixture
def statements(engine):
    """Return what the database is told from now on."""
    seen = []
    event.listen(engine, "before_cursor_execute", lambda *args: seen.append(args[2]))
    return seen


@COMBINATIONS
def test_a_copy_takes_effect_once(engine, tier, options, worker):
    """Whichever tiers there are, in the same unit and in a later one."""
    bench = worker(tier(**options))
    assert bench.run(*orders("a", "b"), *orders("a")) == ["applied", "applied", "duplicate"]
    assert bench.run(*orders("b", "c")) == ["duplicate", "applied"]
    assert payments(engine) == ["k-a", "k-b", "k-c"]


@COMBINATIONS
def test_another_process_decides_the_same(engine, tier, options, worker):
    """Its filter is empty; the database knows."""
    worker(tier(**options)).run(*orders("a"))
    assert worker(tier(**options)).run(*orders("a", "b")) == ["duplicate", "applied"]


@pytest.mark.parametrize("options", [{}, {"bloom": True}, SHARED], ids=["redis", "both", "shared"])
def test_copies_never_reach_the_database(engine, tier, statements, options, worker):
    """Not one statement for a thousand of them, once they are marked."""
    bench = worker(tier(**options))
    paid = orders(*(f"m{n}" for n in range(100)))
    bench.run(*paid)
    statements.clear()
    for _ in range(10):
        assert bench.run(*paid) == ["duplicate"] * 100
    assert statements == []


def test_a_duplicate_says_where_it_was_found(tier, worker):
    """In the same transaction, in Redis, or in the database by a process that asks no Redis."""
    for options, found in (
        ({}, ["", "unit"]),
        ({}, ["redis", "redis"]),
        ({"bloom": True, "redis": False}, None),
    ):
        bench = worker(tier(**options))
        bench.run(*orders("a", "a"))
        tiers = [verdict.tier for verdict in bench.result.verdicts.values()]
        assert tiers == (found or ["database", "database"])


@pytest.mark.parametrize("options", [{}, SHARED], ids=["redis", "shared"])
def test_a_unit_asks_redis_once(engine, tier, client, monkeypatch, options, worker):
    """One round trip to look up, one after the commit to mark."""
    bench = worker(tier(**options))
    bench.run(*orders("warm"))
    trips = []
    real = type(client).together
    monkeypatch.setattr(type(client), "together", lambda self, calls: trips.append(1) or real(self, calls))
    bench.run(*orders(*(f"m{n}" for n in range(100))))
    assert len(trips) == 2


def test_a_filter_saves_asking_about_new_messages(engine, tier, client, monkeypatch, worker):
    """What it has never seen goes straight to the insert."""
    bench = worker(tier(bloom=True))
    bench.run(*orders("warm"))
    asked = []
    real = type(client).together
    monkeypatch.setattr(
        type(client),
        "together",
        lambda self, calls: asked.extend(call.words[0] for call in calls) or real(self, calls),
    )
    bench.run(*orders("a", "b"))
    assert set(asked) == {"SET"}


def test_nothing_is_marked_before_the_commit(engine, tier, client, worker):
    """A message that failed runs again, and is no duplicate of its own try."""
    failing = [True]

    def handler(order: dict, session: Session) -> None:
        pay(order, session)
        if failing:
            raise ValueError

    bench = worker(tier(bloom=True), handler)
    assert bench.run(*orders("a")) == ["retry"]
    failing.clear()
    assert bench.run(*orders("a")) == ["applied"]
    assert payments(engine) == ["k-a"]


def test_other_content_stays_a_conflict(engine, tier, statements, worker):
    """The mark knows the fingerprint, so that the database need not be asked about this either."""
    bench = worker(tier(fingerprint=["body.amount"]))
    bench.run(*orders("a", amount=1))
    statements.clear()
    assert bench.run(*orders("a", amount=1.0)) == ["duplicate"]
    assert bench.run(*orders("a", amount=2)) == ["conflict"]
    assert statements == []


def test_a_copy_that_the_database_knew_is_marked(engine, tier, client, statements, worker):
    """After Redis has lost everything, each message costs the database one more question."""
    strategy = tier(fingerprint=["body.amount"])
    bench = worker(strategy)
    bench.run(*orders("a", amount=1))
    name = strategy._tiers._redis.marks().name("a")
    client.command("DEL", name, key=name)
    assert bench.run(*orders("a", amount=1)) == ["duplicate"]
    statements.clear()
    assert bench.run(*orders("a", amount=1)) == ["duplicate"]
    assert bench.run(*orders("a", amount=2)) == ["conflict"]
    assert statements == []


def test_marks_speak_of_one_ledger(engine, tier, worker):
    """Where it is dropped and made again, nothing has been applied, whatever Redis remembers."""
    worker(tier()).run(*orders("a"))
    schema.drop(engine)
    schema.upgrade(engine)
    assert worker(tier()).run(*orders("a")) == ["applied"]


def test_consumers_do_not_see_each_others_marks(engine, tier, fresh, worker):
    """Two consumers of one topic both apply its messages."""
    worker(tier()).run(*orders("a"))
    assert worker(tier(consumer=f"{fresh}x"), name=f"{fresh}x").run(*orders("a")) == ["applied"]


def test_a_mark_lives_for_its_time_and_a_little_more(engine, tier, client, worker):
    """Never less than `ttl`, and not all until the same moment."""
    strategy = tier(ttl="100s")
    worker(strategy).run(*orders(*(f"m{n}" for n in range(20))))
    names = [strategy._tiers._redis.marks().name(f"m{n}") for n in range(20)]
    lives = [client.command("PTTL", name, key=name) for name in names]
    assert all(95_000 < life <= 110_000 for life in lives)
    assert len(set(lives)) > 1


def test_keys_of_one_prefix_spread_over_all_slots():
    """Also where identities bring braces, which would tie them to one slot."""
    for form in ("order-{}", "{{order}}-{}", "{{a}}{}{{b}}"):
        slots = {slot_of(key_in_redis("mark", "shop.c", form.format(n))) for n in range(200)}
        assert len(slots) > 190


def test_inspect_shows_marks(engine, tier, client, worker):
    """Each applied message of the key, with or without its mark."""
    strategy = tier(fingerprint=["body.amount"])
    worker(strategy).run(*orders("a", amount=1))
    with engine.begin() as connection:
        [(name, said)] = strategy.inspect(connection, "k-a").items()
    assert name == "mark a"
    assert said.startswith("applied, fingerprint ")


def test_inspect_looks_while_others_write(engine, tier, worker):
    """The first thing that a process does may be to look: nothing is written for it, and no write lock is waited for."""
    worker(tier()).run(*orders("a"))
    strategy = tier()
    with engine.begin() as connection:
        connection.execute(text("INSERT INTO payments VALUES ('x')"))
        assert strategy.inspect(connection, "k-a") == {"mark a": "applied"}


def test_figures_are_measured(engine, tier, worker):
    """Shares of what really happened."""
    strategy = tier(bloom={"expected": 100})
    bench = worker(strategy)
    bench.run(*orders("a", "b"), *orders("a"))
    bench.run(*orders("a", "b", "c"))
    figures = strategy.figures()
    assert figures["kept_off_database"] == pytest.approx(2 / 3)
    assert figures["redis_hit_rate"] == 1.0
    assert figures["database_conflict_rate"] == 0.0
    assert figures["false_positive_rate"] == 0.0
    assert figures["bloom_fill"] == pytest.approx(0.03)
    assert figures["redis_circuit_open"] == 0.0


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"redis": False}, "write unique_key"),
        ({"ttl": "1ms"}, "too short to remember"),
        ({"bloom": {"expected": 0}}, "expected"),
        ({"bloom": {"false_positives": 1}}, "share"),
        ({"bloom": {"size": 3}}, "unknown option 'size'"),
        ({"bloom": 7}, "true, false, shared or a mapping"),
        ({"bloom": "shard"}, "true, false, shared or a mapping"),
        ({"bloom": {"shared": "yes"}}, "shared is true or false"),
        ({"bloom": {"name": "seen"}}, "shared: true"),
        ({"bloom": {"shared": True, "name": "{}seen"}}, "its braces"),
        ({"bloom": {"shared": True, "name": 7}}, "name is a text"),
        ({"bloom": {"shared": True, "expected": 900_000_000}}, "bits"),
        ({"tll": "7d"}, "did you mean"),
    ],
)
def test_wrong_options_are_refused(scope, options, words):
    """With what to write."""
    with pytest.raises(ConfigError, match=words):
        Tiered.build(options, scope)


def problems(scope, facts, options, **exceptions):
    """Return what `check` says, by severity."""
    found = list(Tiered.build(options, scope).check(facts(strategies=("tiered",), **exceptions)))
    return [problem.text for problem in found if problem.severity is Severity.ERROR], [
        problem.text for problem in found if problem.severity is Severity.WARNING
    ]


def test_a_time_shorter_than_retries_is_refused(scope, facts):
    """A mark that ends before the last retry is of no use to it."""
    errors, _ = problems(scope, facts, {"ttl": "30m", "redis": False, "bloom": True})
    assert any("30m" in error and "1h" in error for error in errors)


def test_the_usual_time_is_longer_than_retries(scope, facts):
    """With a margin."""
    errors, _ = problems(scope, facts, {"redis": False, "bloom": True}, retry_horizon=timedelta(minutes=9))
    assert errors == []


def test_a_missing_redis_is_refused(scope, facts):
    """The marks have no place."""
    errors, _ = problems(scope, facts, {})
    assert any("Redis" in error for error in errors)


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({}, "marks"),
        ({"bloom": "shared", "redis": False}, "filter"),
        ({"bloom": "shared"}, "marks and filter"),
    ],
)
def test_what_has_no_place_without_redis_is_named(scope, facts, options, what):
    """The shared filter needs one, too."""
    errors, _ = problems(scope, facts, options)
    assert any(f"keeps its {what} in Redis" in error for error in errors)


def test_a_filter_is_warned_of(scope, facts):
    """It cannot see what other processes apply; alone it decides nothing."""
    _, warnings = problems(scope, facts, {"redis": False, "bloom": True})
    assert any("keeps no duplicate off" in warning for warning in warnings)


def test_marks_from_before_a_restore_are_not_believed(engine, worker, tier):
    """What the backup does not have runs again, once; restoring the same backup twice forgets both times."""
    for _ in range(3):
        assert worker(tier()).run(*orders("a")) == ["applied"]
        assert worker(tier()).run(*orders("a")) == ["duplicate"]
        with engine.begin() as connection:
            connection.execute(text("DELETE FROM oncemq_processed"))
            connection.execute(text("DELETE FROM payments"))
            connection.execute(text("DELETE FROM oncemq_schema WHERE version < 0"))
        assert worker(tier()).run(*orders("a")) != ["applied"], "the mark alone says duplicate"
        schema.restored(engine)
    assert payments(engine) == []


def test_a_process_that_runs_on_looks_again(engine, worker, tier, monkeypatch):
    """It believes marks from before a restore for half a minute at most."""
    moment = [1000.0]
    monkeypatch.setattr("oncemq_strategies.tiered.redis_tier.time.monotonic", lambda: moment[0])
    tiered_worker = worker(tier())
    assert tiered_worker.run(*orders("a")) == ["applied"]
    with engine.begin() as connection:
        connection.execute(text("DELETE FROM oncemq_processed"))
        connection.execute(text("DELETE FROM payments"))
    schema.restored(engine)
    assert tiered_worker.run(*orders("a")) == ["duplicate"]
    moment[0] += 31
    assert tiered_worker.run(*orders("a")) == ["applied"]


def test_a_restore_is_noticed_by_itself(engine, worker, tier, sqlite_database, tmp_path, caplog):
    """What the backup does not have runs again, without a word of a person; what it has stays a duplicate."""
    file, backup = engine.url.database, str(tmp_path / "backup.db")
    assert worker(tier()).run(*orders("a")) == ["applied"]
    copy_database(file, backup)
    assert worker(tier()).run(*orders("b")) == ["applied"]
    engine.dispose()
    copy_database(backup, file)
    assert worker(tier()).run(*orders("a", "b", "c")) == ["duplicate", "applied", "applied"]
    assert "went back in time" in caplog.text
    assert worker(tier()).run(*orders("a", "b", "c")) == ["duplicate"] * 3
    assert payments(engine) == ["k-a", "k-b", "k-c"]


def test_marks_are_not_believed_before_their_ledger_is_known(engine, worker, tier, monkeypatch):
    """A database that cannot be written for that keeps its marks for later, and decides by itself."""
    assert worker(tier()).run(*orders("a")) == ["applied"]

    def fail(*_arguments):
        raise OperationalError("UPDATE", {}, Exception("read-only"))

    monkeypatch.setattr("oncemq_strategies.tiered.restore_watch.restore_detection.advance", fail)
    assert worker(tier()).run(*orders("a", "b")) == ["duplicate", "applied"]


def copy_database(source, target):
    """Write one SQLite file over another, as a backup and a restore do."""
    with closing(sqlite3.connect(source)) as found, closing(sqlite3.connect(target)) as made:
        found.backup(made)


@pytest.mark.parametrize("garbage", ["no time", "2026-01-31"], ids=["text", "date"])
def test_a_moment_that_another_program_wrote_is_no_memory(engine, tier, worker, client, fresh, garbage):
    """Copies are still found, and the moment is written again."""
    name = key_in_redis("mark", f"shop.{fresh}:{schema.birth(engine)}-pulse", "")
    client.command("SET", name, garbage, key=name)
    bench = worker(tier())
    assert bench.run(*orders("a")) == ["applied"]
    assert bench.run(*orders("a")) == ["duplicate"]
    assert payments(engine) == ["k-a"]
    assert datetime.fromisoformat(client.command("GET", name, key=name).decode()).tzinfo is not None
