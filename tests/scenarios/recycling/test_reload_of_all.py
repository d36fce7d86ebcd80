"""`oncemq reload`: processes on several machines, in folders of their own with one ledger, each take over or refuse, and answer."""

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from oncemq.ledger.coordination import leases, reloads
from oncemq.ledger.database.engine import make_engine
from oncemq.ledger.database.server_clock import server_time
from oncemq.ledger.records import configurations
from support.apps.program import Started, eventually
from support.apps.warm import WarmProgram

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

_APP = """
app: shop
brokers: {{main: {{url: "embedded:///{folder}/broker.db"}}}}
database: {{url: "{database}"}}
grace: 10s
topics:
  orders: {{key: body.id, strategies: [unique_key]}}
consumers:
  pay: {{topic: orders, handler: "handlers:pay", in_flight: {number}}}
"""
_HANDLERS = "def pay(order: dict) -> None:\n    pass\n"


class Machine:
    """A folder with the app's files, as on a machine of its own.

    Args:
        folder: of the files.
        database: the app's.
    """

    def __init__(self, folder: Path, database: str) -> None:
        folder.mkdir()
        self.folder = folder
        self._database = database
        self.program = WarmProgram(folder)
        (folder / "handlers.py").write_text(_HANDLERS)
        self.configure(100)

    def configure(self, number: int, old: str = "", new: str = "") -> None:
        """Write a configuration, in which `old` is replaced."""
        text = _APP.format(folder=self.folder.parent, database=self._database, number=number)
        (self.folder / "app.yaml").write_text(text.replace(old, new) if old else text)

    def json(self, *arguments: str, code: int = 0) -> list[dict[str, Any]]:
        """Run a command; returns what it prints."""
        done = self.program.call(*arguments, "--json")
        assert done.returncode == code, done.stdout + done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture(
    params=["sqlite", *(pytest.param(name, marks=pytest.mark.server) for name in ("postgresql", "mariadb"))]
)
def database(request: pytest.FixtureRequest) -> str:
    """URL of an empty database."""
    url: str = request.getfixturevalue(f"{request.param}_database")
    return url


@pytest.fixture
def machines(tmp_path: Path, database: str) -> tuple[Machine, Machine]:
    """Two machines of an app whose tables exist."""
    found = Machine(tmp_path / "a", database), Machine(tmp_path / "b", database)
    found[0].program.succeed("tables", "create")
    return found


@pytest.fixture
def running(machines: tuple[Machine, Machine], database: str) -> Iterator[list[Started]]:
    """The app runs on both, and the ledger knows it."""
    with ExitStack() as stack:
        started = [stack.enter_context(machine.program.started("run")) for machine in machines]
        engine = make_engine(database)
        stack.callback(engine.dispose)

        def known() -> bool:
            with engine.connect() as connection:
                starts = sum(note.times for note in configurations.notes(connection, "shop", 10))
                return len(reloads.supervisors(connection, "shop")) == starts == len(machines)

        eventually(known, "both are in the ledger", 60, lambda: "".join(each.said() for each in started))
        yield started


def test_each_process_answers_whether_it_has_taken_over(
    machines: tuple[Machine, Machine], running: list[Started]
) -> None:
    """One refuses a file that cannot run and goes on; with a sound one both take over, and those that have ended are not asked."""
    ours, theirs = machines
    ours.configure(200)
    theirs.configure(200, "unique_key", "sequence")
    first, second = sorted(
        ours.json("reload", "--by", "alice", "--why", "more at once", code=1), key=lambda row: row["outcome"]
    )
    assert (first["outcome"], second["outcome"]) == ("refused", "taken over")
    assert any("version" in problem for problem in first["problems"]), first
    assert (first["pid"], second["pid"]) == (running[1].pid, running[0].pid)
    theirs.configure(200)
    again = ours.json("reload")
    assert [(row["outcome"], row["version"]) for row in again] == [("taken over", second["version"])] * 2
    assert running[1].drain() == 0
    (alone,) = ours.json("reload", "--no-wait")
    assert alone["processes"] == 1
    noted = ours.json("config", "history")
    assert [(row["outcome"], row["occasion"], row["who"], row["why"]) for row in noted[-3:-1]] in (
        [(left, "oncemq reload", "alice", "more at once") for left in order]
        for order in (("refused", "taken over"), ("taken over", "refused"))
    )
    assert (noted[-1]["outcome"], noted[-1]["times"]) == ("started", 2)


def _times(started: Started, event: str) -> list[str]:
    lines = [json.loads(line) for line in started.said().splitlines() if line.startswith("{")]
    return [line["time"] for line in lines if line["event"] == event]


@contextmanager
def _turn_of_another(database: str) -> Iterator[None]:
    """A third process has its turn meanwhile."""
    engine = make_engine(database)
    name, owner = "shop:reload", "another"
    with engine.begin() as connection:
        now = server_time(connection)
        assert leases.acquire(connection, name, owner, now=now, until=now + timedelta(minutes=5))
    yield
    with engine.begin() as connection:
        leases.release(connection, name, owner)
    engine.dispose()


def test_processes_replace_their_workers_one_after_the_other(
    machines: tuple[Machine, Machine], running: list[Started], database: str
) -> None:
    """The second begins when the first has ended; of two that hear a second request meanwhile, each obeys it once."""
    for machine in machines:
        machine.configure(200)
    with _turn_of_another(database):
        machines[0].json("reload", "--no-wait")
        eventually(
            lambda: all(_times(each, "reload waits for its turn") for each in running), "both wait", 60
        )
        assert not any(_times(each, "reload begins") for each in running)
    eventually(lambda: any(_times(each, "reload begins") for each in running), "one begins", 60)
    answers = machines[0].json("reload")
    assert [row["outcome"] for row in answers] == ["taken over"] * 2
    turns = sorted(
        turn
        for each in running
        for turn in zip(_times(each, "reload begins"), _times(each, "reload done"), strict=True)
    )
    assert len(turns) >= 3, turns
    assert all(before[1] <= after[0] for before, after in pairwise(turns)), turns


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_a_former_configuration_is_written_back_and_taken_over(
    machines: tuple[Machine, Machine], running: list[Started]
) -> None:
    """The text that the history has, with the secrets of the file, runs again under its former version."""
    ours, _theirs = machines
    before = (ours.folder / "app.yaml").read_text()
    ours.configure(300)
    assert {row["outcome"] for row in ours.json("reload")} == {"taken over"}
    former = next(row["version"] for row in ours.json("config", "history") if row["outcome"] == "started")
    (shown,) = ours.json("config", "diff", former)
    assert '-  pay: {topic: orders, handler: "handlers:pay", in_flight: 100}' in shown["difference"]
    ours.program.succeed("config", "rollback", former, "--yes")
    assert (ours.folder / "app.yaml").read_text() == before
    answers = ours.json("reload")
    assert [row["outcome"] for row in answers] == ["taken over"] * 2
    assert {row["version"] for row in answers} == {former}
    assert all(each.running for each in running)
