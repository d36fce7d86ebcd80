"""`oncemq record` beside a running app: from the worker through the ledger into a file, and on into a rehearsal."""

import json
import stat
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import select

from oncemq import App
from oncemq.config import load
from oncemq.engine.recording.lines import Wanted
from oncemq.ledger.coordination import recordings
from oncemq.ledger.database.engine import make_engine
from oncemq.operate.auditing import Operator
from oncemq.operate.recording import Recorded, record
from support.apps.command_line import run_program
from support.apps.program import eventually

APP = """
app: shop
brokers: {main: {url: "embedded:///broker.db"}}
database: {url: "%s"}
topics: {orders: {key: body.id, strategies: [unique_key]}}
consumers:
  pay: {topic: orders, handler: "handlers_of_record:pay"}
"""
_ARGUMENTS = ("record", "-o", "traffic.rec")


@pytest.fixture
def url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, database_url: str) -> str:
    """An app with its tables in the working directory; returns its database."""
    (tmp_path / "app.yaml").write_text(APP % database_url)
    (tmp_path / "handlers_of_record.py").write_text("def pay(order: dict) -> None:\n    pass\n")
    monkeypatch.chdir(tmp_path)
    App.from_yaml().create_tables()
    return database_url


@pytest.fixture
def running(url: str) -> Iterator[App]:
    """The same, running."""
    assert url
    app = App.from_yaml()
    app.start()
    yield app
    app.stop()


def test_a_running_app_is_recorded_and_the_file_rehearsed(url: str, running: App, tmp_path: Path) -> None:
    """Without a restart; copies are in it as duplicates, masked values are not, and the ledger is empty again."""
    engine, sent = make_engine(url), iter(range(1000))

    def recorded() -> bool:
        running.publish("orders", {"id": f"k{next(sent)}", "card": "4711-secret"})
        with engine.connect() as connection:
            return connection.execute(select(recordings.RECORDED.c.id)).first() is not None

    def until_recorded(_seconds: float) -> None:
        with engine.connect() as connection:
            until = connection.execute(select(recordings.TABLE.c.until)).scalar()
        assert until is not None
        if not told:
            eventually(recorded, "something is recorded")
            running.publish("orders", {"id": "k0", "card": "4711-secret"})

    told: list[Recorded] = []

    def tell(found: Recorded) -> None:
        told.append(found)
        raise KeyboardInterrupt

    file = tmp_path / "traffic.rec"
    loaded = load([Path("app.yaml")])
    wanted = Wanted(bodies=True, masks=("card",))
    found = record(
        loaded,
        loaded.plan.consumers[0],
        timedelta(hours=1),
        wanted,
        file,
        Operator("ann"),
        tell,
        until_recorded,
    )
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert found.arrivals == len(lines) - 2 > 0
    assert (found.lost, found.unmatched) == (0, set())
    assert {line["outcome"] for line in lines[1:-1]} <= {"applied", "duplicate"}
    assert "secret" not in file.read_text()
    assert (lines[0]["scope"], lines[-1]) == (
        "shop.pay",
        {"end": True, "arrivals": found.arrivals, "lost": 0},
    )
    with engine.connect() as connection:
        assert connection.execute(select(recordings.TABLE)).all() == []
    engine.dispose()
    for engine in loaded.plan.engines:
        engine.dispose()
    again = run_program("rehearse", str(file))
    assert again.exit_code == 0, again.output
    assert "records from before the change protect" in again.stdout
    assert "record" in run_program("audit").stdout


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (("--mask", "card"), 2, "--mask is for --bodies or --field"),
        (("--field", "lines[0].id"), 2, "is not a path in the body"),
        (("--for", "0s"), 2, "must be longer than zero"),
        (("--consumer", "pya"), 3, "did you mean"),
    ],
)
def test_wrong_options_are_explained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], code: int, text: str
) -> None:
    """Nothing is recorded, and the error says what to write."""
    (tmp_path / "app.yaml").write_text(APP % "sqlite:///shop.db")
    (tmp_path / "handlers_of_record.py").write_text("def pay(order: dict) -> None:\n    pass\n")
    monkeypatch.chdir(tmp_path)
    App.from_yaml().create_tables()
    done = run_program(*_ARGUMENTS, *arguments)
    assert text in done.stderr
    assert done.exit_code == code
    assert not Path("traffic.rec").exists()


def test_an_existing_file_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A recording is never written over another."""
    (tmp_path / "app.yaml").write_text(APP % "sqlite:///shop.db")
    (tmp_path / "handlers_of_record.py").write_text("def pay(order: dict) -> None:\n    pass\n")
    monkeypatch.chdir(tmp_path)
    App.from_yaml().create_tables()
    Path("traffic.rec").write_text("precious")
    done = run_program(*_ARGUMENTS)
    assert done.exit_code != 0
    assert "traffic.rec exists: name another file, or remove it" in done.stderr
    assert Path("traffic.rec").read_text() == "precious"
