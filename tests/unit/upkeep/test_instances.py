"""Instances of broadcast consumers that never come back, on each kind of database."""

from datetime import timedelta

from sqlalchemy import Engine, func, insert, select

from oncemq.common.clock import SystemClock
from oncemq.ledger.coordination import broadcast, leases
from oncemq.ledger.coordination.broadcast import LedgerPositions
from oncemq.ledger.messages import dead_letters
from oncemq.ledger.purge import BATCH
from oncemq.ledger.records import processed
from oncemq.message.envelope import Message
from oncemq.upkeep.instances import InstancePurge

KEEP = timedelta(days=7)
CLOCK = SystemClock()


def lived(engine: Engine, name: str, ago: timedelta, records: int = 1) -> None:
    """Have an instance run until some time ago, with records, a position and a dead letter."""
    scope, at = f"shop.refresh@{name}", CLOCK.now() - ago
    LedgerPositions(scope, engine, CLOCK).write({("orders", "broker/0"): 7})
    rows = [{"consumer": scope, "identity": f"{n}", "key": "k", "processed_at": at} for n in range(records)]
    with engine.begin() as connection:
        connection.execute(insert(processed.TABLE), rows)
        dead_letters.add(connection, scope, Message("orders", b"x"), {}, at)
        ended = leases.TABLE.update().where(leases.TABLE.c.name == f"instance {scope}")
        connection.execute(ended.values(until=at))


def left(engine: Engine) -> list[str]:
    """Return the scopes of which there is a record, a position and a dead letter."""
    tables = (processed.TABLE, broadcast.TABLE, dead_letters.TABLE)
    with engine.connect() as connection:
        found = [set(connection.scalars(select(table.c.consumer))) for table in tables]
    assert found[0] == found[1] == found[2]
    return sorted(found[0])


def test_an_instance_that_never_comes_back_is_forgotten(engine: Engine) -> None:
    """With all that it left, in batches, and in words; one that ran within that time keeps everything."""
    lived(engine, "old", KEEP * 2, records=BATCH + 1)
    lived(engine, "young", KEEP / 2)
    lines: list[str] = []
    purge = InstancePurge("shop.refresh", KEEP, CLOCK, lines.append)
    assert [purge(engine), purge(engine), purge(engine)] == [True, False, False]
    assert left(engine) == ["shop.refresh@young"]
    (line,) = lines
    assert line.startswith(
        "instance shop.refresh@old has not run for 7d and is forgotten, with 1 dead letter;"
    )


def test_instances_of_other_consumers_are_not_forgotten(engine: Engine) -> None:
    """Their own task does that, after their own time."""
    lived(engine, "old", KEEP * 2)
    assert not InstancePurge("shop.other", KEEP, CLOCK, list)(engine)
    with engine.connect() as connection:
        assert connection.scalar(select(func.count()).select_from(broadcast.TABLE)) == 1
