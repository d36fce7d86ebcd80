"""`oncemq tables split`: rows are deleted only where the shard that they belong to has them."""

import shutil
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest
from sqlalchemy import Engine, create_engine, insert, select, text

from oncemq.common.sharding import Layout
from oncemq.ledger.coordination import workers
from oncemq.ledger.database.server_clock import server_time
from oncemq.ledger.messages import outbox, parking
from oncemq.ledger.messages.parked_row import Parked
from oncemq.ledger.records.states import TABLE
from oncemq.message.envelope import Message
from support.apps.warm import WarmProgram

KEYS = [f"k{number}" for number in range(20)]
LAYOUT = Layout.even(2)
OWN = [[key for key in KEYS if LAYOUT.shard_of(key) == shard] for shard in (0, 1)]
_APP = """
app: shop
brokers: {{main: {{url: "embedded:///{folder}/broker.db"}}}}
database: {database}
topics: {{orders: {{key: body.id, strategies: [{{state_machine: {{to: body.state, states: [created, paid]}}}}]}}}}
consumers: {{judge: {{topic: orders, handler: "handlers:judge"}}}}
"""


class Shop:
    """An app with records in one database, that is to have two.

    Args:
        folder: of its files.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.program = WarmProgram(folder)
        self.urls = [f"sqlite:///{folder}/{name}.db" for name in "ab"]
        (folder / "handlers.py").write_text("def judge(order: dict) -> None:\n    pass\n")
        self.configure(f'{{url: "{self.urls[0]}"}}')
        self.program.succeed("tables", "create")
        self.engines: Sequence[Engine] = [create_engine(url) for url in self.urls]
        with self.engines[0].begin() as connection:
            connection.execute(text("CREATE TABLE rides (id varchar(20) PRIMARY KEY)"))
            for consumer in ("shop.judge", "other.judge"):
                for key in KEYS:
                    row = {"consumer": consumer, "key": key, "state": "paid", "changed_at": datetime.now(UTC)}
                    connection.execute(insert(TABLE).values(row))
            for key in KEYS:
                connection.execute(text("INSERT INTO rides VALUES (:key)"), {"key": key})

    def configure(self, database: str) -> None:
        """Write the app's file."""
        (self.folder / "app.yaml").write_text(_APP.format(folder=self.folder, database=database))

    def shard(self) -> None:
        """Copy the database, and let the app have both."""
        self.close()  # else SQLite keeps the latest rows beside the file
        shutil.copy(self.folder / "a.db", self.folder / "b.db")
        self.configure(f'{{shards: ["{self.urls[0]}", "{self.urls[1]}"], by: key}}')

    def keys(self, consumer: str = "shop.judge") -> list[list[str]]:
        """Return the keys of a consumer on each shard."""
        found = []
        for engine in self.engines:
            with engine.connect() as connection:
                ours = select(TABLE.c.key).where(TABLE.c.consumer == consumer).order_by(TABLE.c.key)
                found.append(sorted(connection.scalars(ours), key=KEYS.index))
        return found

    def close(self) -> None:
        """Close the test's own connections."""
        for engine in self.engines:
            engine.dispose()


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    """Its database was copied."""
    made = Shop(tmp_path)
    made.shard()
    yield made
    made.close()


def test_each_shard_keeps_what_belongs_to_it(shop: Shop) -> None:
    """Of the app's rows and of the tables that are named; the app starts then, and a preview has deleted nothing."""
    mine = ("--table", "rides=id")
    assert "would be deleted" in shop.program.succeed("tables", "split", *mine, "--preview")
    assert shop.keys() == [KEYS, KEYS]
    assert shop.program.call("check", "--connect").returncode != 0
    said = shop.program.succeed("tables", "split", *mine)
    assert f"rides {len(OWN[0])} stay, {len(OWN[1])} deleted" in said
    assert shop.keys() == OWN
    assert shop.keys("other.judge") == [KEYS, KEYS]
    shop.program.succeed("check", "--connect")


def test_a_row_that_its_shard_does_not_have_is_not_deleted(shop: Shop) -> None:
    """The second database is no copy, or an old one: the error names it, and nothing is deleted anywhere."""
    with shop.engines[1].begin() as connection:
        connection.execute(TABLE.delete().where(TABLE.c.key == OWN[1][0]))
    before = shop.keys()
    refused = shop.program.call("tables", "split")
    assert refused.returncode != 0
    assert "1 rows of oncemq_states in" in refused.stderr
    assert "copy the whole database there first" in refused.stderr
    assert shop.keys() == before


def test_a_copy_that_was_not_split_is_told_from_a_new_database(shop: Shop) -> None:
    """The start, `tables create` and `tables upgrade` say what is to be done, also where slots were written down."""
    slots = ", ".join(f'"{LAYOUT.slots(shard)}"' for shard in (0, 1))
    for more in ("", f", slots: [{slots}]"):
        shop.configure(f'{{shards: ["{shop.urls[0]}", "{shop.urls[1]}"], by: key{more}}}')
        for command in (["run", "--until-idle", "1s"], ["tables", "upgrade"], ["tables", "create"]):
            refused = shop.program.call(*command)
            assert refused.returncode != 0, command
            assert "`oncemq tables split`" in refused.stderr
            if more or command[0] == "run":
                assert "it was copied, but not split yet" in refused.stderr, command
    shop.program.succeed("tables", "split")
    for command in (["tables", "upgrade"], ["tables", "create"], ["run", "--until-idle", "1s"]):
        shop.program.succeed(*command)
    assert shop.keys() == OWN


def test_rows_that_were_not_copied_are_told_from_copies(shop: Shop) -> None:
    """A second database that is empty: the first one's keys would be new there."""
    with shop.engines[1].begin() as connection:
        connection.execute(TABLE.delete())
    refused = shop.program.call("run", "--until-idle", "1s")
    assert "and they are not there: duplicates would take effect" in refused.stderr


def test_a_row_with_the_same_number_is_not_the_same_row(shop: Shop) -> None:
    """Each shard counts its own: a message that waits is not deleted because another has its number elsewhere."""
    for engine, key in zip(shop.engines, (OWN[0][0], OWN[0][1]), strict=True):
        with engine.begin() as connection:
            parking.add(connection, "shop.judge", [waiting(key)])
    refused = shop.program.call("tables", "split")
    assert "1 rows of oncemq_parked in" in refused.stderr
    assert "which does not have them" in refused.stderr
    for engine in shop.engines:
        with engine.connect() as connection:
            assert parking.count(connection, "shop.judge") == 1


def test_a_published_message_stays_where_its_maker_was(shop: Shop) -> None:
    """Its key may belong elsewhere: a row of one shard alone stays, and of copies the first shard keeps one."""
    claim = outbox.Claim("shop", "dead", datetime.now(UTC))
    for engines, key in ((shop.engines, OWN[1][0]), (shop.engines[1:], OWN[0][0])):
        for engine in engines:
            with engine.begin() as connection:
                row = dict.fromkeys(("topic", "headers", "consumer"), "x")
                moments = dict.fromkeys(("created_at", "due_at"), claim.due_at)
                values = {
                    **row,
                    **moments,
                    "app": "shop",
                    "key": key,
                    "message_id": key,
                    "body": b"",
                    "owner": "dead",
                }
                connection.execute(insert(outbox.TABLE).values(**values, attempts=0))
    shop.program.succeed("tables", "split")
    found = []
    for engine in shop.engines:
        with engine.connect() as connection:
            found.append(list(connection.execute(select(outbox.TABLE.c.key)).scalars()))
    assert found == [[OWN[1][0]], [OWN[0][0]]]


def waiting(key: str) -> Parked:
    """Return a message that waits in the ledger."""
    now = datetime.now(UTC)
    return Parked(0, key, key, 2, False, Message("orders", b"{}"), "early", now, None)


def test_nothing_is_split_while_the_app_runs(shop: Shop) -> None:
    """Its rows would change meanwhile."""
    with shop.engines[0].begin() as connection:
        workers.started(connection, "shop", "w", "web-1", 7, server_time(connection))
    assert "shop runs: web-1 (pid 7)" in shop.program.call("tables", "split").stderr
    assert shop.keys() == [KEYS, KEYS]


def test_a_split_that_was_killed_is_completed_by_the_next_one(shop: Shop) -> None:
    """What it has deleted is on the other shard."""
    with shop.engines[0].begin() as connection:
        gone = TABLE.delete().where(TABLE.c.consumer == "shop.judge", TABLE.c.key.in_(OWN[1][:3]))
        connection.execute(gone)
    shop.program.succeed("tables", "split")
    assert shop.keys() == OWN


@pytest.mark.parametrize(
    ("table", "why"),
    [
        ("rides", "write --table TABLE=COLUMN"),
        ("cars=id", "there is no table cars"),
        ("rides=key", "table rides has no column key"),
    ],
)
def test_a_table_that_cannot_be_divided_is_named(shop: Shop, table: str, why: str) -> None:
    """Before anything is deleted."""
    assert why in shop.program.call("tables", "split", "--table", table).stderr
    assert shop.keys() == [KEYS, KEYS]
