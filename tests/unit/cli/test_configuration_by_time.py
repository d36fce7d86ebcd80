"""Which configuration a record was written under, by the time at which each was loaded."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

from oncemq.ledger.database.engine import make_engine
from oncemq.ledger.records import configurations, history
from oncemq.ledger.records.configurations import REFUSED, START, STARTED, TAKEN_OVER, Load, Note
from oncemq.ledger.records.history import HistoryRow
from oncemq.operate.configuration.by_time import LoadedConfigurations
from support.apps.warm import WarmProgram

TEN = datetime(2026, 3, 1, 10, tzinfo=UTC)


def _at(hour: float) -> datetime:
    return TEN + timedelta(hours=hour - 10)


def _load(
    version: str,
    at: float,
    host: str = "web-1",
    process: str = "",
    times: int = 1,
    first: float | None = None,
) -> Load:
    occasion = START if not process else "oncemq reload"
    first_at = _at(at if first is None else first)
    return Load(version, 1, host, process or f"{host}-{at}", occasion, "alice", _at(at), times, first_at)


def _versions(loads: list[Load], at: float, **running: float) -> list[str]:
    known = LoadedConfigurations(loads, {name: _at(until) for name, until in running.items()})
    return [each.version for each in known.at(_at(at))]


def test_a_record_was_written_under_the_latest_that_had_been_loaded() -> None:
    """Nothing is said about a time before the history begins."""
    loads = [_load("v1", 10), _load("v2", 12)]
    assert _versions(loads, 9) == []
    assert _versions(loads, 11) == ["v1"]
    assert _versions(loads, 13) == ["v2"]


def test_while_processes_reload_one_after_the_other_both_are_named() -> None:
    """Until the last of them has taken over, and for one that runs the former one to this day."""
    loads = [
        _load("v1", 10, "web-1", "one"),
        _load("v1", 10, "web-2", "two"),
        _load("v1", 10, "web-3", "three"),
        _load("v2", 12, "web-1", "one"),
        _load("v2", 13, "web-2", "two"),
    ]
    assert _versions(loads, 12.5) == ["v2", "v1"]
    assert _versions(loads, 14) == ["v2"]
    assert _versions(loads, 14, three=15) == ["v2", "v1"]


def test_repeated_starts_are_told_by_when_their_text_was_first_seen() -> None:
    """The history keeps the time of the last one only; where a former text came back, both are named until then."""
    again = [_load("v1", 10), _load("v2", 15, times=3, first=12)]
    assert _versions(again, 11) == ["v1"]
    assert _versions(again, 13) == ["v2"]
    back = [_load("v1", 10), _load("v2", 12), _load("v1", 15, times=3, first=10)]
    assert _versions(back, 13) == ["v1", "v2"]
    assert _versions(back, 16) == ["v1"]


def _row(hours: float) -> HistoryRow:
    at = datetime.now(UTC) + timedelta(hours=hours)
    return HistoryRow("shop.pay", "orders", "7", "7", "duplicate", "", 1, at)


def test_inspect_names_the_configuration_of_records(tmp_path: Path) -> None:
    """With who loaded it and when; what was refused is not named, and without a history there is nothing new."""
    url = f"sqlite:///{tmp_path}/shop.db"
    (tmp_path / "app.yaml").write_text(
        f"""
app: shop
brokers: {{main: {{url: "embedded:///{tmp_path}/broker.db"}}}}
database: {{url: "{url}"}}
topics: {{orders: {{key: body.id, strategies: [unique_key]}}}}
consumers: {{pay: {{topic: orders, handler: "handlers:pay"}}}}
"""
    )
    (tmp_path / "handlers.py").write_text("def pay(order: dict) -> None:\n    pass\n")
    program = WarmProgram(tmp_path)
    program.succeed("tables", "create")
    engine = make_engine(url)
    try:
        with engine.begin() as connection:
            history.add(connection, [_row(-1)])
        assert "CONFIGURATION" not in program.succeed("inspect", "7")
        with engine.begin() as connection:
            for version, outcome in (("v1", STARTED), ("v2", TAKEN_OVER), ("v3", REFUSED)):
                occasion = START if outcome == STARTED else "oncemq reload"
                note = Note("shop", version, "web-1", "one", occasion, "alice", outcome=outcome)
                configurations.add(connection, note, [])
            history.add(connection, [_row(1)])
    finally:
        engine.dispose()
    shown = program.succeed("inspect", "7")
    assert "configurations by the time of these records:" in shown
    found = json.loads(program.succeed("inspect", "7", "--json"))
    assert found["history"][-1]["configuration"] == "v2"
    assert "configuration" not in found["history"][0]
    (row,) = found["configurations"]
    assert (row["version"], row["occasion"], row["who"], row["host"]) == (
        "v2",
        "oncemq reload",
        "alice",
        "web-1",
    )
