"""Processes that die in a rotation, or while others rotate: nothing is left behind, nothing is applied twice."""

import os
import random
import signal
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from time import monotonic

import pytest
from sqlalchemy import Engine, text

from oncemq.errors import InfrastructureError
from oncemq.ledger.database.engine import make_engine
from oncemq.ledger.generations import registry, rotation
from oncemq.ledger.generations.bulk import GenerationBulk
from oncemq.ledger.records import processed
from oncemq.ledger.sql.bulk import Shape
from support.patience import PATIENCE

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
AT_ONCE = timedelta(0)
LONG = timedelta(seconds=30 * PATIENCE)
SCOPE = "shop.award"
SHAPE = Shape(processed.TABLE, "identity", "processed_at", inserted=("key",))
IDENTITIES = [f"order {number}" for number in range(600)]
TOGETHER = 20


def forked(engine: Engine, work: Callable[[Engine], None]) -> int:
    """Run this in a process of its own, with connections of its own; returns its number."""
    url = engine.url.render_as_string(hide_password=False)
    number = os.fork()
    if number == 0:
        code = 1
        try:
            work(make_engine(url))
            code = 0
        finally:
            os._exit(code)
    return number


def status_of(number: int) -> int:
    """Wait for a process; returns how it ended."""
    return os.waitpid(number, 0)[1]


def applied(engine: Engine, identities: list[str]) -> None:
    """Apply a unit: a record and an effect for each message that is new, again and again if the database is busy."""
    bulk = _BULKS.setdefault(os.getpid(), GenerationBulk(SHAPE, monotonic))
    while True:
        try:
            with engine.begin() as connection:
                new = bulk.insert_new(connection, SCOPE, [(each, "key") for each in sorted(identities)], NOW)
                for each in new:
                    connection.execute(text("INSERT INTO effects VALUES (:identity)"), {"identity": each})
        except InfrastructureError:
            continue
        return


def reached(engine: Engine, count: int) -> None:
    """Wait until so many effects are committed."""
    until = monotonic() + 30 * PATIENCE
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        while connection.scalar(text("SELECT count(*) FROM effects")) < count:
            assert monotonic() < until, "nothing is applied"


_BULKS: dict[int, GenerationBulk] = {}


@pytest.fixture
def begun(ledger: Engine) -> Engine:
    """A ledger with a generation, and a table of effects without any constraint."""
    rotation.begin(ledger, SCOPE)
    with ledger.begin() as connection:
        connection.execute(text("CREATE TABLE effects (identity text)"))
    return ledger


@pytest.mark.parametrize("step", rotation.STEPS)
def test_a_process_that_dies_in_a_rotation_leaves_it_to_another(begun: Engine, step: str) -> None:
    """After each step: the generation is as it was, units go on, and the next process rotates."""

    def die(engine: Engine) -> None:
        def point(reached: str) -> None:
            if reached == step:
                os.kill(os.getpid(), signal.SIGKILL)

        rotation.rotate(engine, SCOPE, AT_ONCE, done=point)

    applied(begun, ["a"])
    assert status_of(forked(begun, die)) == signal.SIGKILL
    applied(begun, ["a", "b"])
    assert rotation.rotate(begun, SCOPE, AT_ONCE, wait=LONG)
    applied(begun, ["a", "b", "c"])
    with begun.connect() as connection:
        assert sorted(connection.scalars(text("SELECT identity FROM effects"))) == ["a", "b", "c"]
        assert len(registry.generations_of(connection, SCOPE)) == 3
        named = text("SELECT count(*) FROM pg_tables WHERE tablename ~ '^oncemq_processed_[0-9]+$'")
        assert connection.scalar(named) == 2


def test_processes_that_apply_rotate_and_die_apply_each_message_once(begun: Engine) -> None:
    """Three processes get the same messages, two rotate without a pause, and some of both are killed and replaced."""
    draw = random.Random(7)

    def apply(seed: int) -> Callable[[Engine], None]:
        def work(engine: Engine) -> None:
            order = random.Random(seed).sample(IDENTITIES, len(IDENTITIES))
            for start in range(0, len(order), TOGETHER):
                applied(engine, order[start : start + TOGETHER])

        return work

    def turn(engine: Engine) -> None:
        for _ in range(8):
            rotation.rotate(engine, SCOPE, AT_ONCE, wait=LONG)

    victims = [forked(begun, apply(seed)) for seed in range(2)] + [forked(begun, turn)]
    others = [forked(begun, apply(9)), forked(begun, turn)]
    for number, victim in enumerate(draw.sample(victims, len(victims)), 1):
        reached(begun, number * TOGETHER)
        os.kill(victim, signal.SIGKILL)
        status_of(victim)
        others.append(forked(begun, apply(draw.randrange(1000)) if len(others) % 2 else turn))
    assert [status_of(other) for other in others] == [0] * len(others)
    applied(begun, IDENTITIES)
    with begun.connect() as connection:
        effects = list(connection.scalars(text("SELECT identity FROM effects")))
        assert len(registry.generations_of(connection, SCOPE)) > 8
    assert sorted(effects) == sorted(IDENTITIES)
