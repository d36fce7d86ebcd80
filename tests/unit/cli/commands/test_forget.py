"""What `forget` removes, what it shows and asks before, and what it refuses."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import Engine, insert, select, text

from oncemq import App
from oncemq.cli.exit_codes import CONFIG, DATABASE, FAILED, USAGE
from oncemq.errors import LedgerError
from oncemq.ledger import schema
from oncemq.ledger.coordination import workers
from oncemq.ledger.database.engine import make_engine
from oncemq.ledger.records import claims, final_failures, history, processed, sequences, states
from oncemq.ledger.records.forgetting import Choice
from oncemq.operate.auditing import Operator
from oncemq.operate.forgetting import Forgetting
from services.waiting import wait_until
from support.apps.command_line import CommandLine

APP = """
app: {app}
brokers:
  shop: {{url: "embedded:///{folder}/broker.db"}}
database: {{url: "{database}"}}
topics:
  order.paid: {{key: body.order_id, strategies: [{strategies}]{more}}}
consumers:
  award: {{topic: order.paid, handler: "handlers:award"{consumer}}}
"""
HANDLERS = '''
from sqlalchemy import text
from sqlalchemy.orm import Session


def award(order: dict, session: Session) -> None:
    """Write down the effect."""
    session.execute(text("INSERT INTO effects (id) VALUES (:id)"), {"id": order["order_id"]})


def call(order: dict) -> None:
    """Do nothing."""
'''
AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
SCOPE = "loyalty.award"


class Shop:
    """An app with its database."""

    def __init__(
        self,
        folder: Path,
        database: str,
        app: str = "loyalty",
        strategies: str = "unique_key",
        more: str = "",
        consumer: str = "",
    ) -> None:
        self.line = CommandLine(folder)
        filled = APP.format(
            app=app, folder=folder, database=database, strategies=strategies, more=more, consumer=consumer
        )
        self.line.app.write_text(filled)
        (folder / "handlers.py").write_text(HANDLERS)
        self.engine: Engine = make_engine(database)
        schema.create(self.engine)
        with self.engine.begin() as connection:
            connection.execute(text("CREATE TABLE effects (id VARCHAR(40))"))
        self.forget = self.run = self.line.run

    def effects(self) -> int:
        """Return how often the handler took effect."""
        with self.engine.connect() as connection:
            return connection.execute(text("SELECT count(*) FROM effects")).scalar_one()

    def applied(self, *keys: str, at: datetime = AT) -> None:
        """Record messages as applied."""
        with self.engine.begin() as connection:
            for key in keys:
                row = {"consumer": SCOPE, "identity": key, "key": key, "processed_at": at}
                connection.execute(insert(processed.TABLE), row)

    def add(self, table, **row) -> None:
        """Add a row of this consumer to a table."""
        with self.engine.begin() as connection:
            connection.execute(insert(table), {"consumer": SCOPE, **row})

    def left(self, table=processed.TABLE, column: str = "key") -> list[str]:
        """Return what is left in a table."""
        with self.engine.connect() as connection:
            return list(connection.execute(select(table.c[column]).order_by(table.c[column])).scalars())


@pytest.fixture
def everywhere(tmp_path, database_url):
    """An app whose consumer decides by `unique_key`, on each kind of database."""
    shop = Shop(tmp_path, database_url)
    yield shop
    shop.engine.dispose()


@pytest.fixture
def shop(build):
    """The same on SQLite."""
    return build()


@pytest.fixture
def build(tmp_path, sqlite_database):
    """Return a function that makes another app on SQLite."""
    shops = []

    def make(**options) -> Shop:
        shops.append(Shop(tmp_path, sqlite_database, **options))
        return shops[-1]

    yield make
    for shop in shops:
        shop.engine.dispose()


def test_a_message_that_has_failed_for_good_runs_again(everywhere):
    """What keeps it from running beside its `on_dead` function's effect goes with its record."""
    everywhere.applied("a1")
    everywhere.add(final_failures.TABLE, identity="a1", key="a1", code="rejected", reason="no", at=AT)
    shown = everywhere.run("inspect", "a1").stdout
    assert "failed for good, on_dead has taken effect" in shown
    assert everywhere.forget("forget", "a1", "--yes").exit_code == 0
    assert (everywhere.left(), everywhere.left(final_failures.TABLE)) == ([], [])


def test_a_forgotten_message_takes_effect_once_more(everywhere):
    """The same message is a duplicate before, runs after it, and is a duplicate again."""
    app = App.from_yaml(everywhere.line.app)
    app.start()
    try:
        for count in (1, 2):
            for _ in range(2):
                app.publish("order.paid", {"order_id": "a1"})
            assert wait_until(
                lambda count=count: everywhere.effects() == count and everywhere.line.waiting() == 0,
                seconds=30,
            )
            result = everywhere.run("forget", "a1", "--yes", "--reason", "wrong price")
            assert result.exit_code == 0, result.output
    finally:
        app.stop()
    assert everywhere.effects() == 2


def test_each_removed_record_leaves_a_line_in_the_history(shop):
    """Who removed it, what it was, and why: shown by `inspect`."""
    shop.applied("a1", "a2")
    result = shop.run("forget", "a1", "--yes", "--reason", "wrong price")
    assert result.exit_code == 0, result.output
    assert shop.left() == ["a2"]
    with shop.engine.connect() as connection:
        (row,) = history.of_key(connection, "a1")
    assert (row.consumer, row.topic, row.identity, row.outcome) == (SCOPE, "order.paid", "a1", "forgotten")
    assert "written 2026-01-02T03:04:05+00:00, removed by " in row.reason
    assert row.reason.endswith(": wrong price")


def test_a_time_selects_what_was_applied_in_it(shop):
    """From `--since` on, and before `--until`; what another consumer applied stays."""
    for hour, key in enumerate(("a", "b", "c", "d")):
        shop.applied(key, at=AT + timedelta(hours=hour))
    shop.add(
        processed.TABLE, consumer="loyalty.other", identity="x", key="x", processed_at=AT + timedelta(hours=1)
    )
    result = shop.run(
        "forget", "--consumer", "award", "--since", "2026-01-02T04:04:05Z", "--until", "2026-01-02T07:04:05+01:00", "--yes"
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    assert shop.left() == ["a", "d", "x"]


def test_more_than_one_step_is_removed(everywhere):
    """A time may cover more records than a transaction takes."""
    with everywhere.engine.begin() as connection:
        rows = [
            {"consumer": SCOPE, "identity": f"k{number}", "key": f"k{number}", "processed_at": AT}
            for number in range(1203)
        ]
        connection.execute(insert(processed.TABLE), rows)
    result = everywhere.run(
        "forget", "--consumer", "award", "--since", "2026-01-01T00:00:00Z", "--yes", "--json"
    )
    assert json.loads(result.stdout.splitlines()[-1]) == {"consumer": "award", "forgotten": 1203}
    assert everywhere.left() == []


def test_a_preview_removes_nothing(shop):
    """It shows consumer, table, key, identity and time."""
    shop.applied("a1")
    result = shop.run("forget", "a1", "--preview")
    assert (result.exit_code, shop.left()) == (0, ["a1"])
    assert result.stdout.splitlines()[1].split() == [
        "award", "oncemq_processed", "a1", "a1", "-", "2026-01-02T03:04:05Z", "-",
    ]  # fmt: skip


def test_without_a_terminal_it_shows_and_says_how_to_confirm(shop):
    """Nothing is removed by a script that did not say --yes."""
    shop.applied("a1")
    result = shop.run("forget", "a1")
    assert (result.exit_code, shop.left()) == (USAGE, ["a1"])
    assert "--yes" in result.stderr


def test_a_key_goes_back_to_its_beginning(everywhere):
    """The state and the number that the ledger keeps of a whole key are removed with it."""
    everywhere.add(states.TABLE, key="a1", state="paid", changed_at=AT)
    everywhere.add(sequences.TABLE, key="a1", last="7", moved_at=AT)
    everywhere.add(sequences.TABLE, key="a2", last="7", moved_at=AT)
    result = everywhere.run("forget", "a1", "--yes")
    assert result.exit_code == 0, result.output
    assert (everywhere.left(states.TABLE), everywhere.left(sequences.TABLE)) == ([], ["a2"])


def test_a_claim_that_is_worked_on_is_refused(shop):
    """Its handler may be running: neither it nor anything else of the key is removed."""
    shop.applied("a1")
    claim = {"identity": "a1:2", "key": "a1", "holder": "h", "envelope": "{}"}
    shop.add(claims.TABLE, state="processing", until=AT, **claim)
    result = shop.run("forget", "a1", "--yes")
    assert (result.exit_code, shop.left(), shop.left(claims.TABLE)) == (FAILED, ["a1"], ["a1"])
    assert "oncemq reconcile" in result.stdout


def test_a_claim_begun_after_the_preview_is_refused(shop):
    """What was shown is not what would be removed."""
    shop.applied("a1")
    with shop.line.plan() as plan:
        asked = Forgetting(plan, plan.consumers[0], Choice(("a1",)))
        assert len(list(asked.look())) == 1
        claim = {"identity": "a1:2", "key": "a1", "holder": "h", "envelope": "{}"}
        shop.add(claims.TABLE, state="processing", until=AT, **claim)
        with pytest.raises(LedgerError, match="is being worked on"):
            asked.remove(Operator())
    assert shop.left() == ["a1"]


def test_a_number_that_moves_after_the_preview_is_refused(shop):
    """A message of the key is running: it would otherwise count as never seen."""
    shop.add(sequences.TABLE, key="a1", last="7", moved_at=AT)
    with shop.line.plan() as plan:
        asked = Forgetting(plan, plan.consumers[0], Choice(("a1",)))
        assert len(list(asked.look())) == 1
        with shop.engine.begin() as connection:
            connection.execute(sequences.TABLE.update().values(last="8"))
        with pytest.raises(LedgerError, match="has changed meanwhile"):
            asked.remove(Operator())
    assert shop.left(sequences.TABLE, "last") == ["8"]


def test_what_is_applied_after_the_preview_stays(shop):
    """A message that takes effect while the preview is read is not run twice."""
    shop.applied("a1")
    with shop.line.plan() as plan:
        asked = Forgetting(plan, plan.consumers[0], Choice(("a1", "a2")))
        assert len(list(asked.look())) == 1
        shop.applied("a2", at=plan.clock.now() + timedelta(seconds=1))
        assert asked.remove(Operator()) == 1
    assert shop.left() == ["a2"]


def test_a_time_is_refused_where_a_key_has_a_place(build):
    """No time says which state or number a key had then."""
    shop = build(strategies="sequence", more=", version: body.number")
    result = shop.run("forget", "--consumer", "award", "--since", "1h", "--yes")
    assert result.exit_code == CONFIG
    assert "oncemq_sequences" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "say which"),
        (("--since", "1h"), "say which"),
        (("--consumer", "award"), "say which"),
        (("--consumer", "award", "--since", "2026-01-01"), "neither a time with a zone"),
        (("--consumer", "award", "--since", "1h", "--until", "2h"), "--until is not later"),
        ([f"k{number}" for number in range(501)], "at most 500 keys"),
    ],
)
def test_an_unclear_choice_is_refused(build, arguments, said):
    """It says what to write."""
    result = build().run("forget", *arguments, "--yes")
    assert (result.exit_code, said in result.stderr) == (USAGE, True), result.stderr


def test_caches_of_a_running_app_are_refused(build, any_redis_url):
    """A running process could mark a copy that it has just found, after the mark was removed."""
    shop = build(strategies="tiered")
    shop.line.app.write_text(shop.line.app.read_text() + f'redis: {{url: "{any_redis_url}"}}\n')
    shop.applied("a1")
    with shop.engine.begin() as connection:
        workers.started(connection, "loyalty", "w", "host", 7, datetime.now(UTC))
    result = shop.run("forget", "a1", "--yes")
    assert (result.exit_code, shop.left()) == (DATABASE, ["a1"])
    assert "stop the app first (processes 7 on host)" in result.stderr


def test_marks_in_redis_are_removed_too(build, any_redis_url, fresh):
    """After it the message runs again, also where a copy would never have reached the database."""
    shop = build(app=fresh, strategies="tiered")
    shop.line.app.write_text(shop.line.app.read_text() + f'redis: {{url: "{any_redis_url}"}}\n')
    for count in (1, 2):
        app = App.from_yaml(shop.line.app)
        app.start()
        try:
            app.publish("order.paid", {"order_id": "a1"})
            assert wait_until(lambda count=count: shop.effects() == count, seconds=30)
        finally:
            app.stop()
        result = shop.run("forget", "a1", "--yes")
        assert result.exit_code == 0, result.output


def test_flags_in_redis_are_removed(build, any_redis_url, fresh):
    """What `redis_flag` keeps of a key is found there, shown, and removed."""
    shop = build(app=fresh, strategies="redis_flag", consumer=", effects: external")
    shop.line.app.write_text(
        shop.line.app.read_text().replace("handlers:award", "handlers:call")
        + f'redis: {{url: "{any_redis_url}"}}\n'
    )
    app = App.from_yaml(shop.line.app)
    app.start()
    try:
        app.publish("order.paid", {"order_id": "a1"})
        assert wait_until(lambda: "success" in shop.run("inspect", "a1").stdout, seconds=30)
    finally:
        app.stop()
    shown = shop.run("forget", "a1", "--yes")
    assert (shown.exit_code, "redis_flag" in shown.stdout) == (0, True), shown.output
    assert (
        "flag" not in shop.run("inspect", "a1", "--json").stdout.split('"strategies"')[1].split("history")[0]
    )
