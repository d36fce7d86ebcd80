"""An app whose records are in generations: it runs, and every command knows where they are."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine, create_engine, text

from oncemq import App
from oncemq.ledger.generations import registry, rotation
from support.apps.command_line import run_program

SCOPE = "shop.award"
_APP = """
app: shop
brokers:
  main: {{url: "embedded:///{folder}/broker.db"}}
database: {{url: "{database}"}}
{ledger}
topics:
  order.paid: {{key: body.order_id, strategies: [{strategies}]}}
consumers:
  award: {{topic: order.paid, handler: "handlers_of_generations:award"{more}}}
"""
_HANDLERS = '''
from sqlalchemy import text
from sqlalchemy.orm import Session


def award(order: dict, session: Session) -> None:
    """Note the effect, or fail for good."""
    if order["order_id"].startswith("bad"):
        raise ValueError("never")
    session.execute(text("INSERT INTO effects VALUES (:order_id)"), {"order_id": order["order_id"]})


def dead(order: dict, session: Session) -> None:
    """Note that it failed."""
    session.execute(text("INSERT INTO effects VALUES (:order_id)"), {"order_id": "dead " + order["order_id"]})
'''


class Shop:
    """The app in a folder, on a database of its own."""

    def __init__(self, folder: Path, database: str) -> None:
        self.folder = folder
        self.database = database
        self.engine: Engine = create_engine(database)
        (folder / "handlers_of_generations.py").write_text(_HANDLERS)
        self.write()
        with self.engine.begin() as connection:
            connection.execute(text("CREATE TABLE effects (order_id text)"))

    def write(
        self, ledger: str = "ledger: {generations: 1d}", strategies: str = "unique_key", more: str = ""
    ) -> None:
        """Write the file."""
        given = {"folder": self.folder, "database": self.database, "ledger": ledger}
        content = _APP.format(**given, strategies=strategies, more=more)
        (self.folder / "app.yaml").write_text(content)

    def oncemq(self, *arguments: str, code: int = 0) -> str:
        """Run a command; returns what it prints."""
        shown = run_program("-f", str(self.folder / "app.yaml"), *arguments)
        assert shown.exit_code == code, shown.output
        return shown.output

    def run(self, *orders: str) -> None:
        """Publish orders and run the app until it is idle."""
        self.publish(*({"order_id": order} for order in orders))
        assert App.from_yaml(self.folder / "app.yaml").run(until_idle="200ms") == 0

    def publish(self, *bodies: dict[str, object]) -> None:
        """Publish messages."""
        app = App.from_yaml(self.folder / "app.yaml")
        for body in bodies:
            app.publish("order.paid", body)

    def effects(self) -> list[str]:
        """Return what took effect, sorted."""
        with self.engine.connect() as connection:
            return sorted(connection.scalars(text("SELECT order_id FROM effects")))

    def age(self, interval: str = "30 days") -> None:
        """Let all that is in the list have happened so much earlier."""
        with self.engine.begin() as connection:
            connection.execute(
                text(
                    "UPDATE oncemq_generations SET opened_at = opened_at - CAST(:ago AS interval), "
                    "sealed_at = sealed_at - CAST(:ago AS interval), retired_at = retired_at - CAST(:ago AS interval)"
                ),
                {"ago": interval},
            )

    def tables(self) -> list[str]:
        """Return the tables of the generations that there are."""
        with self.engine.connect() as connection:
            found = text(
                "SELECT tablename FROM pg_tables WHERE tablename ~ '^oncemq_processed_[0-9]+$' ORDER BY 1"
            )
            return list(connection.scalars(found))


@pytest.fixture
def bare(tmp_path: Path, postgresql_database: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shop]:
    """An app with generations, without tables."""
    monkeypatch.chdir(tmp_path)
    made = Shop(tmp_path, postgresql_database)
    yield made
    made.engine.dispose()


@pytest.fixture
def shop(bare: Shop) -> Shop:
    """An app with generations whose tables exist."""
    assert "the first generation of shop.award" in bare.oncemq("tables", "create")
    return bare


def test_it_applies_once_over_rotations(shop: Shop) -> None:
    """Its own housekeeping rotates when a day is over, and copies of the day before are duplicates."""
    shop.run("o-1", "o-2", "o-1")
    shop.age("25 hours")
    shop.run("o-1", "o-3")
    shop.run("o-1", "o-3", "o-2")
    assert shop.effects() == ["o-1", "o-2", "o-3"]
    assert len(shop.tables()) == 2


def test_old_generations_go_by_themselves(shop: Shop) -> None:
    """A generation of which every record is older than `keep` is retired, and dropped by a later step."""
    shop.run("o-1")
    shop.age()
    shop.run("o-2")
    shop.age()
    shop.run()
    shop.age()
    shop.run("o-1")
    assert shop.effects() == ["o-1", "o-1", "o-2"]
    with shop.engine.connect() as connection:
        assert not any(each.legacy for each in registry.generations_of(connection, SCOPE, retired=True))


def test_an_old_ledger_goes_on(bare: Shop) -> None:
    """What was applied before the option was written is a duplicate after it, and the way there is one command."""
    shop = bare
    shop.write(ledger="")
    shop.oncemq("tables", "create")
    shop.run("o-1")
    shop.write()
    assert "run `oncemq tables create`" in shop.oncemq("run", "--until-idle", "300ms", code=5)
    shop.oncemq("tables", "create")
    shop.run("o-1", "o-2")
    assert shop.effects() == ["o-1", "o-2"]
    assert "o-1" in shop.oncemq("inspect", "o-1")


def test_inspect_forget_and_purge_know_generations(shop: Shop) -> None:
    """A record is shown, forgotten so that its message runs again, and goes with its generation."""
    shop.run("o-1", "o-2")
    rotation.rotate(shop.engine, SCOPE, rotation.SHORTEST_WAIT * 0)
    shop.run("o-3")
    found = json.loads(shop.oncemq("inspect", "o-1", "--json"))
    assert [row["identity"] for row in found["processed"]] == ["o-1"]
    shop.oncemq("forget", "award", "o-1", "--yes")
    shop.run("o-1", "o-2")
    assert shop.effects() == ["o-1", "o-1", "o-2", "o-3"]
    status = json.loads(shop.oncemq("status", "--json"))
    assert status["consumers"][0]["last_applied"]
    shop.age()
    assert json.loads(shop.oncemq("purge", "--json"))["generations"] == 2
    assert not json.loads(shop.oncemq("inspect", "o-2", "--json"))["processed"]
    shop.age()
    shop.oncemq("purge")
    assert len(shop.tables()) == 1


def test_a_message_that_failed_for_good_runs_again_when_replayed(shop: Shop) -> None:
    """The record that `on_dead` wrote is in a generation, too, and goes when the message is replayed."""
    shop.write(more=', retry: {attempts: 1}, on_dead: "handlers_of_generations:dead"')
    shop.run("bad 1", "bad 1")
    assert shop.effects() == ["dead bad 1"]
    rotation.rotate(shop.engine, SCOPE, rotation.SHORTEST_WAIT * 0)
    shop.oncemq("dead-letters", "replay", "award", "--all")
    shop.run()
    assert shop.effects() == ["dead bad 1", "dead bad 1"]


def test_fingerprints_are_compared_over_generations(shop: Shop) -> None:
    """The same identity with other content is a conflict, also when it was applied in an older generation."""
    shop.write(strategies="{unique_key: {fingerprint: [body.amount]}}")
    shop.publish({"order_id": "o-1", "amount": 1})
    shop.run()
    rotation.rotate(shop.engine, SCOPE, rotation.SHORTEST_WAIT * 0)
    shop.publish(*({"order_id": "o-1", "amount": amount} for amount in (1, 2)))
    shop.run()
    assert "conflict" in shop.oncemq("dead-letters", "list", "award")
    assert shop.effects() == ["o-1"]


def test_a_former_name_brings_its_generations(shop: Shop) -> None:
    """What was applied under a name that a consumer had before is a duplicate under the new one."""
    shop.run("o-1")
    content = (shop.folder / "app.yaml").read_text()
    (shop.folder / "app.yaml").write_text(content.replace("  award:", "  points:"))
    shop.oncemq("tables", "create")
    (shop.folder / "app.yaml").write_text(
        content.replace("  award:", "  points:").replace('award"}', 'award", formerly: award}')
    )
    shop.run("o-1", "o-2")
    assert shop.effects() == ["o-1", "o-2"]


def test_a_dropped_ledger_leaves_nothing(shop: Shop) -> None:
    """Generations, triggers and their function go with the tables; an app without the option starts again."""
    shop.run("o-1")
    shop.oncemq("tables", "drop", "--yes")
    assert shop.tables() == []
    shop.write(ledger="")
    shop.oncemq("tables", "create")
    shop.run("o-2")
    assert shop.effects() == ["o-1", "o-2"]


def test_an_account_that_may_not_create_tables_is_refused(shop: Shop) -> None:
    """At the start, in words: the app could not rotate."""
    with shop.engine.begin() as connection:
        connection.execute(text("CREATE ROLE plain_of_shop LOGIN PASSWORD 'plain'"))
        connection.execute(text("GRANT ALL ON ALL TABLES IN SCHEMA public TO plain_of_shop"))
    try:
        url = shop.engine.url.set(username="plain_of_shop", password="plain")
        shop.database = url.render_as_string(hide_password=False)
        shop.write()
        assert "may not create tables" in shop.oncemq("run", "--until-idle", "300ms", code=5)
    finally:
        with shop.engine.begin() as connection:
            connection.execute(text("DROP OWNED BY plain_of_shop"))
            connection.execute(text("DROP ROLE plain_of_shop"))


def test_the_way_back_is_a_copy(shop: Shop) -> None:
    """With the statements of the page an app without the option knows what was applied in generations."""
    shop.run("o-1", "o-2")
    page = (Path(__file__).parents[4] / "docs" / "ledger.md").read_text()
    statements = re.findall(r"```sql\n(.*?)```", page, re.DOTALL)[0]
    (table,) = shop.tables()
    with shop.engine.begin() as connection:
        for statement in statements.replace("oncemq_processed_2", table).split(";")[:-1]:
            connection.execute(text(statement))
    shop.write(ledger="")
    shop.run("o-1", "o-3")
    assert shop.effects() == ["o-1", "o-2", "o-3"]
