"""A database remembers which shard it is, and no other layout is served by it."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from sqlalchemy import Engine, insert

from oncemq.common.sharding import Layout
from oncemq.errors import LedgerError
from oncemq.ledger import schema
from oncemq.ledger.coordination import shards
from oncemq.ledger.database.engine import make_engine
from oncemq.ledger.records import processed

TWO, THREE = Layout.even(2), Layout.even(3)
MOVED = Layout.of(["0-341", "512-853", "342-511, 854-1023"])


@pytest.fixture
def engines(tmp_path: Path) -> Iterator[list[Engine]]:
    """Three databases with a ledger each."""
    made = [make_engine(f"sqlite:///{tmp_path}/{number}.db") for number in range(3)]
    for engine in made:
        schema.create(engine)
    yield made
    for engine in made:
        engine.dispose()


def test_the_same_shards_are_served_again(engines: list[Engine]) -> None:
    """Creating twice says nothing new, and another app may share the databases by another layout."""
    assert len(shards.create(engines, "shop", THREE)) == 3
    assert shards.create(engines, "shop", THREE) == []
    shards.ensure(engines, "shop", THREE)
    shards.create(engines[:1], "other", Layout.even(1))
    shards.ensure(engines[2:], "third", None)


def test_a_topic_that_was_never_created_is_not_served(engines: list[Engine]) -> None:
    """Like every table of the ledger."""
    with pytest.raises(LedgerError, match="run `oncemq tables create`"):
        shards.ensure(engines, "shop", THREE)


@pytest.mark.parametrize("change", ["added", "swapped", "whole"])
def test_another_layout_is_refused(engines: list[Engine], change: str) -> None:
    """A shard more, another order, or one database alone: keys would be looked for where they are not."""
    shards.create(engines[:2], "shop", TWO)
    given = {"added": engines, "swapped": engines[1::-1], "whole": engines[:1]}[change]
    layout = {"added": THREE, "swapped": TWO, "whole": None}[change]
    for act in (shards.ensure, shards.create, shards.upgrade):
        with pytest.raises(LedgerError, match="keys would be looked for where they are not"):
            act(given, "shop", layout)
    shards.ensure(engines[:2], "shop", TWO)


def test_a_chosen_layout_is_taken_over_by_upgrade_alone(engines: list[Engine]) -> None:
    """Anyone who wrote down the slots has moved the rows; a start does not take that for granted."""
    shards.create(engines[:2], "shop", TWO)
    for act in (shards.ensure, shards.create):
        with pytest.raises(LedgerError, match="tables split"):
            act(engines, "shop", MOVED)
    assert len(shards.upgrade(engines, "shop", MOVED)) == 3
    shards.ensure(engines, "shop", MOVED)


def test_a_database_with_records_does_not_become_a_shard(engines: list[Engine]) -> None:
    """Keys that now belong elsewhere would be new there; unless someone says where they are."""
    row = {"consumer": "shop.points", "identity": "o1", "key": "k1", "processed_at": datetime.now(UTC)}
    with engines[0].begin() as connection:
        connection.execute(insert(processed.TABLE), row)
    with pytest.raises(LedgerError, match="from before it was sharded"):
        shards.create(engines[:2], "shop", TWO)
    shards.create(engines[:2], "another", TWO)
    everything = Layout.of(["0-1022", "1023"])
    assert len(shards.create(engines[:2], "shop", everything)) == 2
