"""`oncemq tables move`: numbers that `sequence` has reached get into the column of versions that `optimistic_lock` reads."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import BigInteger, Column, Integer, Numeric, SmallInteger, create_engine, insert, select, text
from sqlalchemy.dialects import mysql

from oncemq import App
from oncemq.ledger.coordination import workers
from oncemq.ledger.database.server_clock import server_time
from oncemq.ledger.records.sequences import TABLE
from oncemq_strategies.optimistic_lock.versions_move import VersionsMove
from support.apps.warm import WarmProgram

_APP = """
app: shop
brokers: {{main: {{url: "embedded:///{folder}/broker.db"}}}}
database: {{url: "sqlite:///{folder}/shop.db"}}
topics: {{entries: {{key: body.id, version: body.seq}}}}
consumers:
  book: {{topic: entries, handler: "handlers:book", strategies: [{strategies}]}}
"""
_LOCK = "{{optimistic_lock: {{entity: {{table: accounts, key: id, version: version}}, early: park{more}}}}}"
_HANDLERS = '''"""One row for each effect."""

from sqlalchemy import text
from sqlalchemy.orm import Session


def book(entry: dict, session: Session) -> None:
    session.execute(text("INSERT INTO booked (id, seq) VALUES (:id, :seq)"), entry)
    if entry["seq"] == 1:
        session.execute(text("INSERT INTO accounts (id) VALUES (:id)"), entry)
'''


class Bank:
    """An app that has run with `sequence`.

    Args:
        folder: of its files.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.program = WarmProgram(folder)
        self.engine = create_engine(f"sqlite:///{folder}/shop.db")
        (folder / "handlers.py").write_text(_HANDLERS)
        with self.engine.begin() as connection:
            connection.execute(text("CREATE TABLE accounts (id varchar(20) PRIMARY KEY, version int)"))
            connection.execute(
                text("CREATE TABLE booked (number INTEGER PRIMARY KEY, id varchar(20), seq int)")
            )
        self.configure("sequence")
        self.program.succeed("tables", "create")

    def configure(self, strategies: str) -> None:
        """Write the app's file."""
        (self._folder / "app.yaml").write_text(_APP.format(folder=self._folder, strategies=strategies))

    def lock(self, more: str = "") -> None:
        """Write the new configuration."""
        self.configure(_LOCK.format(more=more))

    def publish(self, *numbers: int, key: str = "a") -> None:
        """Publish entries of an account."""
        app = App.from_yaml(self._folder / "app.yaml")
        for number in numbers:
            app.publish("entries", {"id": key, "seq": number})

    def run(self, left: int = 0) -> None:
        """Let the app do what there is; so many messages go on waiting in the ledger."""
        done = self.program.call("run", "--until-idle", "1s", timeout=120)
        assert done.returncode == (6 if left else 0), done.stderr
        assert not left or f"{left} parked messages of book" in done.stderr

    def ledger(self, **numbers: int) -> None:
        """Let the ledger have numbers, with an empty one and one of another consumer."""
        rows = [("shop.book", key, str(number)) for key, number in numbers.items()]
        for consumer, key, last in [*rows, ("shop.book", "none", ""), ("shop.other", "a", "7")]:
            row = {"consumer": consumer, "key": key, "last": last, "moved_at": datetime.now(UTC)}
            with self.engine.begin() as connection:
                connection.execute(insert(TABLE).values(row))

    def accounts(self, **versions: int | None) -> None:
        """Let the table have rows."""
        with self.engine.begin() as connection:
            for key, version in versions.items():
                connection.execute(text("INSERT INTO accounts VALUES (:a, :b)"), {"a": key, "b": version})

    def found(self) -> tuple[dict[str, str], dict[str, int]]:
        """Return the consumer's numbers in the ledger, and the table's versions."""
        ours = select(TABLE.c.key, TABLE.c.last).where(TABLE.c.consumer == "shop.book", TABLE.c.last != "")
        with self.engine.connect() as connection:
            mine = {row.key: row.last for row in connection.execute(ours)}
            return mine, {row.id: row.version for row in connection.execute(text("SELECT * FROM accounts"))}

    def booked(self) -> list[int]:
        """Return the numbers of all effects, in their order."""
        with self.engine.connect() as connection:
            return list(connection.execute(text("SELECT seq FROM booked ORDER BY number")).scalars())


@pytest.fixture
def bank(tmp_path: Path) -> Iterator[Bank]:
    """Its tables are there."""
    made = Bank(tmp_path)
    yield made
    made.engine.dispose()


def test_entries_go_on_where_the_sequence_was(bank: Bank) -> None:
    """Copies of earlier ones have no effect, and one that waited in the ledger comes in its turn."""
    bank.publish(1, 2, 4)
    bank.run(left=1)
    assert bank.booked() == [1, 2]
    bank.lock()
    refused = bank.program.call("run", "--until-idle", "1s")
    assert refused.returncode != 0
    assert "has numbers of it, and accounts.version is read instead" in refused.stderr
    assert "oncemq tables move book --preview" in refused.stderr
    shown = bank.program.succeed("tables", "move", "book", "--preview")
    assert "accounts.version: 1 numbers – 1 would be copied" in shown
    assert bank.found() == ({"a": "2"}, {"a": None})
    assert "deleted 1 numbers" in bank.program.succeed("tables", "move", "book", "--by", "alice")
    assert "alice" in bank.program.succeed("audit")
    assert bank.found() == ({}, {"a": 2})
    bank.publish(1, 2, 3, 2)
    bank.run()
    assert bank.booked() == [1, 2, 3, 4]
    assert bank.found() == ({}, {"a": 4})


def test_a_message_that_waits_is_looked_at_after_the_move(bank: Bank) -> None:
    """`sequence` would have been told of the number that it waits for, which came by another way."""
    bank.publish(1, 3)
    bank.run(left=1)
    bank.lock()
    bank.program.succeed("tables", "move", "book")
    with bank.engine.begin() as connection:
        connection.execute(text("UPDATE accounts SET version = 2"))
    bank.run()
    assert bank.booked() == [1, 3]


@pytest.mark.parametrize(("more", "version"), [("", 5), (", message_version: current", 6)])
def test_the_version_is_that_of_the_row_after_its_last_message(bank: Bank, more: str, version: int) -> None:
    """A message that names the version before it leaves the next one."""
    bank.ledger(a=5)
    bank.accounts(a=None)
    bank.lock(more)
    bank.program.succeed("tables", "move", "book")
    assert bank.found() == ({}, {"a": version})
    with bank.engine.connect() as connection:
        assert connection.scalars(select(TABLE.c.consumer)).all() == ["shop.other"]


@pytest.mark.parametrize(
    ("differing", "missing", "wanted"),
    [("ledger", "insert", {"a": 5, "b": 2, "c": 3}), ("table", "drop", {"a": 4, "c": 3})],
)
def test_nothing_is_written_while_it_is_not_said_what_becomes_of_a_row(
    bank: Bank, differing: str, missing: str, wanted: dict[str, int]
) -> None:
    """Rows that differ or are missing are named; with an answer for both the move is made."""
    bank.ledger(a=5, b=2, c=3)
    bank.accounts(a=4, c=3)
    bank.lock()
    before = bank.found()
    refused = bank.program.call("tables", "move", "book")
    assert refused.returncode == 1
    assert "key 'a': the ledger says 5, accounts.version says 4" in refused.stderr
    assert "key 'b': accounts has no row for the number 2" in refused.stderr
    assert "1 equal already" in refused.stdout
    assert bank.found() == before
    bank.program.succeed("tables", "move", "book", "--differing", differing, "--missing", missing)
    assert bank.found() == ({}, wanted)


def test_nothing_moves_while_the_app_runs(bank: Bank) -> None:
    """A process that reads the ledger would apply messages again."""
    bank.ledger(a=5)
    bank.accounts(a=None)
    bank.lock()
    with bank.engine.begin() as connection:
        workers.started(connection, "shop", "w", "web-1", 7, server_time(connection))
    assert "shop runs: web-1 (pid 7)" in bank.program.call("tables", "move", "book").stderr
    assert bank.found() == ({"a": "5"}, {"a": None})


def test_beside_a_sequence_nothing_is_left_over(bank: Bank) -> None:
    """A consumer with both reads both: its numbers are neither refused nor moved."""
    bank.ledger(a=5)
    bank.configure("sequence, " + _LOCK.format(more=""))
    bank.run()
    assert (
        "none of its strategies reads a table of yours" in bank.program.call("tables", "move", "book").stderr
    )
    assert bank.found()[0] == {"a": "5"}


@pytest.mark.parametrize(
    ("kind", "most"),
    [
        (SmallInteger(), 2**15 - 1),
        (Integer(), 2**31 - 1),
        (BigInteger(), 2**63 - 1),
        (mysql.TINYINT(), 127),
        (mysql.TINYINT(unsigned=True), 255),
        (mysql.MEDIUMINT(), 2**23 - 1),
        (mysql.INTEGER(unsigned=True), 2**32 - 1),
        (Numeric(4, 0), 9999),
    ],
)
def test_a_number_that_the_column_cannot_hold_is_found_before_it_is_written(kind: Any, most: int) -> None:
    """Else the database would refuse a whole batch, or store another number."""
    move = VersionsMove("shop.book", "accounts.version", lambda _connection: None, 0)  # type: ignore[arg-type, return-value]
    assert move.fits(Column("version", kind), most)
    assert not move.fits(Column("version", kind), most + 1)
