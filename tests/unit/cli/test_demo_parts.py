"""The demo's parts: its events, its counting, its last word."""

import random
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, text

from oncemq.cli.demo.events import STATES, as_networks_do, read_events
from oncemq.cli.demo.report import as_json, audience, verdict
from oncemq.cli.demo.show import Result, Settings, _finish, _impatient
from oncemq.cli.demo.stage import example_folder
from oncemq.cli.demo.tally import Tally, tally
from oncemq.errors import ConfigError, OnceMQError
from oncemq.ledger import schema
from oncemq.ledger.records import history

KEPT = Tally(
    published=11,
    delivered=11,
    applied=9,
    duplicates=1,
    stale=1,
    dead=0,
    overtaken=0,
    double=0,
    backwards=0,
    lost=0,
)


def test_the_shipped_orders_have_the_columns_of_real_ones() -> None:
    """The shipped file has one row per order and a column for each step."""
    header, *rows = (example_folder() / "orders.csv").read_text().splitlines()
    assert header == "order_id,customer_id,order_status,purchased_at,approved_at,shipped_at,delivered_at"
    assert len(rows) == 500


def test_events_are_the_steps_that_happened_in_the_order_they_happened(tmp_path: Path) -> None:
    """An empty time is a step that did not happen."""
    file = tmp_path / "orders.csv"
    file.write_text(
        "order_id,purchased_at,approved_at,shipped_at,delivered_at\n"
        "a,2024-01-01T10:00:00,2024-01-03T10:00:00,,\n"
        "b,2024-01-02T10:00:00,,,\n"
    )
    events = read_events(file, "mine-", rounds=1)
    assert [(event.order_id, event.status) for event in events] == [
        ("mine-0-a", "purchased"),
        ("mine-0-b", "purchased"),
        ("mine-0-a", "approved"),
    ]


@pytest.mark.parametrize(
    ("content", "what"),
    [
        ("order_id,purchased_at\na,2024-01-01T10:00:00\n", "'approved_at'"),
        ("order_id,purchased_at,approved_at,shipped_at,delivered_at\na,soon,,,\n", "'soon'"),
    ],
)
def test_a_file_that_has_no_orders_is_refused(tmp_path: Path, content: str, what: str) -> None:
    """The error names the file, what was found, and the columns that are needed."""
    file = tmp_path / "letters.csv"
    file.write_text(content)
    with pytest.raises(ConfigError) as caught:
        read_events(file, "", rounds=1)
    assert str(file) in str(caught.value)
    assert what in str(caught.value)
    assert "order_id, purchased_at, approved_at, shipped_at, delivered_at" in str(caught.value)


def test_networks_repeat_a_share_and_lose_nothing() -> None:
    """Every event is sent, a tenth of them twice, and not in the order in which they happened."""
    events = read_events(example_folder() / "orders.csv", "", rounds=1)
    sent = as_networks_do(events, random.Random(1), twice=0.1, window=50)
    counted = Counter(sent)
    assert counted.keys() == set(events)
    assert Counter(counted.values()) == {1: len(events) - round(len(events) / 10), 2: round(len(events) / 10)}
    assert [event for event in sent if counted[event] == 1] != [e for e in events if counted[e] == 1]


def test_a_second_send_is_another_message() -> None:
    """The two copies of an event have the same body and different message ids."""
    event = read_events(example_folder() / "orders.csv", "", rounds=1)[0]
    first, second = event.message(), event.message()
    assert first.body == second.body
    assert first.message_id != second.message_id


@pytest.mark.parametrize(
    ("steps", "broken"),
    [
        ([("o", "purchased"), ("o", "approved")], {}),
        ([("o", "purchased"), ("o", "approved"), ("o", "approved")], {"double": 1}),
        ([("o", "approved"), ("o", "purchased")], {"backwards": 1}),
        ([("o", "purchased")], {"lost": 1}),
    ],
)
def test_what_is_wrong_is_counted(
    sqlite_database: str, steps: list[tuple[str, str]], broken: dict[str, int]
) -> None:
    """Lost, doubled and backward effects are found in the effects themselves."""
    engine = create_engine(sqlite_database)
    schema.create(engine, [])
    with engine.begin() as connection:
        connection.execute(
            text("CREATE TABLE order_steps (id INTEGER PRIMARY KEY, order_id TEXT, status TEXT)")
        )
        for order, status in steps:
            connection.execute(
                text("INSERT INTO order_steps (order_id, status) VALUES (:order, :status)"),
                {"order": order, "status": status},
            )
    found = tally(engine, "o", 2, {"o:purchased", "o:approved"})
    engine.dispose()
    wrong = {name: getattr(found, name) for name in ("double", "backwards", "lost", "dead")}
    assert {name: count for name, count in wrong.items() if count} == broken
    assert found.holds is not bool(broken)


@pytest.mark.parametrize(("outcome", "holds"), [("overtaken", True), ("attempts-exhausted", False)])
def test_an_event_that_a_later_one_overtook_at_the_kill_breaks_no_promise(
    sqlite_database: str, outcome: str, *, holds: bool
) -> None:
    """Its worker was killed while it ran, so it is a dead letter and not stale in silence; others stay a fault."""
    engine = create_engine(sqlite_database)
    schema.create(engine, [])
    with engine.begin() as connection:
        connection.execute(
            text("CREATE TABLE order_steps (id INTEGER PRIMARY KEY, order_id TEXT, status TEXT)")
        )
        connection.execute(text("INSERT INTO order_steps (order_id, status) VALUES ('o', 'approved')"))
        row = {
            "consumer": "demo.track",
            "identity": "o:purchased",
            "key": "o",
            "outcome": outcome,
            "reason": "",
        }
        connection.execute(
            history.TABLE.insert(), {**row, "topic": "orders", "attempt": 1, "at": datetime.now(UTC)}
        )
    found = tally(engine, "o", 2, {"o:purchased", "o:approved"})
    engine.dispose()
    assert (found.lost, found.overtaken + found.dead, found.holds) == (0, 1, holds)


class Started:
    """A stage whose app ends at once."""

    def __init__(self, code: int = 0) -> None:
        self.starts = 1
        self._code = code

    def start(self, _processes: int) -> None:
        """Start once more."""
        self.starts += 1

    def finish(self) -> int:
        """Return the exit code."""
        return self._code

    def log_end(self) -> str:
        """Return what the app has said."""
        return "its last words"


def finished(stage: Started, *lost: int) -> Tally:
    """Return the counts of a demo whose app loses so many, each time that it has run."""
    told = iter(lost)
    played: Any = stage
    return _finish(played, Settings("", "", None, 1, 2), lambda: replace(KEPT, lost=next(told)))


def test_what_an_idle_app_has_left_is_not_lost() -> None:
    """On a slow machine it may end before a broker has given it what a killed worker held."""
    stage = Started()
    assert finished(stage, 7, 0) == KEPT
    assert stage.starts == 2


def test_what_never_comes_is_lost() -> None:
    """The app is given a few more chances, and no more."""
    stage = Started()
    assert finished(stage, 7, 7, 7).lost == 7
    assert stage.starts == 3


def test_an_app_that_fails_ends_the_demo() -> None:
    """With what it said last."""
    with pytest.raises(OnceMQError, match="exit code 3; the last it said:\nits last words"):
        finished(Started(3), 0)


def test_a_kept_promise_is_said_in_one_line() -> None:
    """The last line of a good demo names what was done to it."""
    assert verdict(Result(KEPT, 17, 2.0, "")).endswith("shuffled, and a worker was killed midway.")


def test_a_broken_promise_says_how_and_shows_the_log() -> None:
    """The counts that are wrong are named, and the app's last lines follow."""
    broken = Result(replace(KEPT, lost=3, double=1), None, 2.0, "the log's end")
    assert verdict(broken) == (
        "The promise was broken: 3 events were lost, 1 effects came twice. The last the app said:\nthe log's end"
    )


def test_json_says_whether_the_promise_holds() -> None:
    """Scripts need not know which counts must be zero."""
    assert as_json(Result(KEPT, None, 2.0, ""))["holds"] is True
    assert as_json(Result(replace(KEPT, backwards=1), None, 2.0, ""))["holds"] is False


def test_progress_is_a_few_plain_lines_off_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    """An act has about five lines, whatever its length."""
    with audience(silent=False) as tell:
        for done in range(1, 1001):
            tell("consuming", done, 1000)
    lines = capsys.readouterr().out.splitlines()
    assert lines == [f"consuming: {done:,} of 1,000" for done in (200, 400, 600, 800, 1000)]


def test_the_states_are_those_of_the_example() -> None:
    """The demo judges by the same order of states that the example's YAML declares."""
    declared = (example_folder() / "app.yaml").read_text()
    assert f"states: [{', '.join(STATES)}]" in declared


@pytest.mark.parametrize(
    ("broker", "used"),
    [
        ("kafka://host:9092", "kafka://host:9092?session_timeout=6s"),
        ("kafka://host:9092?namespace=a", "kafka://host:9092?namespace=a&session_timeout=6s"),
        ("kafka://host:9092?session_timeout=30s", "kafka://host:9092?session_timeout=30s"),
        ("kafka://host:9092?protocol=consumer", "kafka://host:9092?protocol=consumer"),
        ("amqp://host/", "amqp://host/"),
    ],
)
def test_the_demo_does_not_wait_long_for_a_killed_workers_partitions(broker: str, used: str) -> None:
    """Kafka gives them to others when the session has ended, which by default is after 45 seconds."""
    assert _impatient(broker) == used
