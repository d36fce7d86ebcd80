"""`oncemq tables move`: states of the ledger get into a column of the user's, all of them or none."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from sqlalchemy import create_engine, insert, select, text, update

from oncemq.config import load
from oncemq.contracts.moving import MoveRules
from oncemq.errors import ConfigError
from oncemq.ledger.coordination import workers
from oncemq.ledger.database.server_clock import server_time
from oncemq.ledger.records.states import TABLE
from oncemq.operate import moving
from oncemq.operate.moving import Move
from oncemq_strategies.common import column_move
from support.apps.warm import WarmProgram

_APP = """
app: shop
brokers: {{main: {{url: "embedded:///{folder}/broker.db"}}}}
database: {{url: "sqlite:///{folder}/shop.db"}}
topics: {{orders: {{key: body.id}}}}
consumers:
  judge:
    topic: orders
    handler: "handlers:judge"
    strategies:
      - state_machine: {{to: body.state, states: [created, paid], entity: {{table: rides, key: id, state: status}}}}
"""
NO_RULES = MoveRules()


class Shop:
    """An app whose configuration is the new one already.

    Args:
        folder: of its files.
    """

    def __init__(self, folder: Path) -> None:
        self.program = WarmProgram(folder)
        self.engine = create_engine(f"sqlite:///{folder}/shop.db")
        self.file = folder / "app.yaml"
        self.file.write_text(_APP.format(folder=folder))
        (folder / "handlers.py").write_text("def judge(order: dict) -> None:\n    pass\n")
        with self.engine.begin() as connection:
            connection.execute(text("CREATE TABLE rides (id varchar(20) PRIMARY KEY, status varchar(8))"))
        self.program.succeed("tables", "create")

    def ledger(self, **states: str) -> None:
        """Let the ledger have states, with an empty one and one of another consumer."""
        rows = [("shop.judge", key, state) for key, state in states.items()]
        for row in [*rows, ("shop.judge", "none", ""), ("shop.other", "a", "paid")]:
            self.row(*row)

    def row(self, consumer: str, key: str, state: str) -> None:
        """Let the ledger have a state."""
        row = {"consumer": consumer, "key": key, "state": state, "changed_at": datetime.now(UTC)}
        with self.engine.begin() as connection:
            connection.execute(insert(TABLE).values(row))

    def rides(self, **states: str | None) -> None:
        """Let the table have rows."""
        with self.engine.begin() as connection:
            for key, state in states.items():
                connection.execute(
                    text("INSERT INTO rides VALUES (:key, :state)"), {"key": key, "state": state}
                )

    def found(self) -> tuple[dict[str, str], dict[str, str]]:
        """Return the consumer's states in the ledger, and the table's."""
        with self.engine.connect() as connection:
            ours = select(TABLE.c.key, TABLE.c.state).where(
                TABLE.c.consumer == "shop.judge", TABLE.c.state != ""
            )
            mine = {row.key: row.state for row in connection.execute(ours)}
            return mine, {row.id: row.status for row in connection.execute(text("SELECT * FROM rides"))}

    def moves(self) -> Move:
        """Return what the command works with."""
        (found,) = moving.moves_of(load([self.file]).plan, "judge")
        return found


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    """Its tables are there."""
    made = Shop(tmp_path)
    yield made
    made.engine.dispose()


def test_states_are_copied_and_then_deleted_from_the_ledger(shop: Shop) -> None:
    """A preview changes nothing; rows of other consumers stay, and the change is in the audit trail."""
    shop.ledger(a="paid", b="created", c="paid")
    shop.rides(a=None, b="created", c=None)
    before = shop.found()
    shown = shop.program.succeed("tables", "move", "judge", "--preview")
    assert "rides.status: 3 states – 2 would be copied, 1 equal already" in shown
    assert shop.found() == before
    assert "deleted 4 states" in shop.program.succeed("tables", "move", "judge", "--by", "alice")
    assert shop.found() == ({}, {"a": "paid", "b": "created", "c": "paid"})
    with shop.engine.connect() as connection:
        assert connection.scalars(select(TABLE.c.consumer)).all() == ["shop.other"]
    assert "alice" in shop.program.succeed("audit")


@pytest.mark.parametrize(
    ("differing", "missing", "wanted"),
    [
        ("ledger", "insert", {"a": "paid", "b": "paid"}),
        ("table", "drop", {"a": "created"}),
    ],
)
def test_nothing_is_written_while_it_is_not_said_what_becomes_of_a_row(
    shop: Shop, differing: str, missing: str, wanted: dict[str, str]
) -> None:
    """Rows that differ or are missing are named; with an answer for both the move is made."""
    shop.ledger(a="paid", b="paid")
    shop.rides(a="created")
    before = shop.found()
    refused = shop.program.call("tables", "move", "judge")
    assert refused.returncode == 1
    assert "key 'a': the ledger says 'paid', rides.status says 'created'" in refused.stderr
    assert "key 'b': rides has no row for the state 'paid'" in refused.stderr
    assert shop.found() == before
    shop.program.succeed("tables", "move", "judge", "--differing", differing, "--missing", missing)
    assert shop.found() == ({}, wanted)


def test_a_state_that_the_column_cannot_hold_is_named(shop: Shop) -> None:
    """Else a database that cuts values would store another state."""
    shop.ledger(a="delivered", b="paid")
    shop.rides(a=None, b=None)
    refused = shop.program.call("tables", "move", "judge")
    assert "key 'a': rides.status cannot hold the state 'delivered'" in refused.stderr
    assert shop.found() == ({"a": "delivered", "b": "paid"}, {"a": None, "b": None})


def test_nothing_moves_while_the_app_runs(shop: Shop) -> None:
    """A process that reads the ledger would apply messages again."""
    shop.ledger(a="paid")
    shop.rides(a=None)
    with shop.engine.begin() as connection:
        workers.started(connection, "shop", "w", "web-1", 7, server_time(connection))
    refused = shop.program.call("tables", "move", "judge")
    assert refused.returncode != 0
    assert "shop runs: web-1 (pid 7)" in refused.stderr
    assert shop.found() == ({"a": "paid"}, {"a": None})


def test_a_move_that_was_killed_is_completed_by_the_next_one(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until then the ledger has every state, so the former configuration can run as before."""
    monkeypatch.setattr(column_move, "BATCH", 2)
    shop.ledger(a="paid", b="paid", c="paid")
    shop.rides(a=None, b=None, c=None)
    move = shop.moves()
    with move.engine.begin() as connection:
        move.what.copy(connection, "", NO_RULES)  # and is killed
    assert shop.found() == (dict.fromkeys("abc", "paid"), {"a": "paid", "b": "paid", "c": None})
    count = move.copy(NO_RULES)
    assert (count.rows, count.equal, count.written) == (3, 2, 1)
    assert move.finish(NO_RULES) == 4
    assert shop.found() == ({}, dict.fromkeys("abc", "paid"))


def test_a_state_that_changed_after_it_was_copied_is_not_deleted(shop: Shop) -> None:
    """A process of the former configuration ran meanwhile; the next move copies it again."""
    shop.ledger(a="created")
    shop.rides(a=None)
    move, rules = shop.moves(), MoveRules(overwrite=True)
    move.copy(rules)
    with shop.engine.begin() as connection:
        connection.execute(update(TABLE).where(TABLE.c.key == "a").values(state="paid"))
    with pytest.raises(ConfigError, match="have changed"):
        move.finish(rules)
    assert shop.found()[0] == {"a": "paid"}


def test_a_consumer_whose_states_the_ledger_keeps_has_nothing_to_move(shop: Shop) -> None:
    """The error says what to write first, and names the consumers where the name is wrong."""
    assert "there is no consumer 'jugde'" in shop.program.call("tables", "move", "jugde").stderr
    shop.file.write_text(
        shop.file.read_text().replace(", entity: {table: rides, key: id, state: status}", "")
    )
    refused = shop.program.call("tables", "move", "judge")
    assert "write the new configuration first" in refused.stderr


def test_the_app_does_not_start_while_the_ledger_has_states(shop: Shop) -> None:
    """`check --connect` says it, too; rows without a state are none."""
    shop.ledger()
    shop.program.succeed("check", "--connect")
    shop.row("shop.judge", "a", "paid")
    for command in (["check", "--connect"], ["run", "--until-idle", "1s"]):
        refused = shop.program.call(*command)
        assert refused.returncode != 0
        assert "oncemq tables move judge --preview" in refused.stdout + refused.stderr
