"""Two apps with two processes each share one SQLite file and one file of the embedded broker, while their workers are killed."""

import os
import signal
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from support.apps.judged_app import JudgedApp, fine
from support.apps.program import Started, eventually
from support.brokers.places import Place

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

ROUND, KILLS = 120, 3


class SharingApp(JudgedApp):
    """An app of which only its own effects are counted: the other one's are in the same table."""

    def effects(self) -> list[tuple[str, int, int]]:
        """Return (id, attempt, process) of every effect of this app."""
        return [effect for effect in super().effects() if effect[0].startswith(self.place.name)]


def sharing(folder: Path, name: str) -> SharingApp:
    """Return an app with files of its own for code, and the folder's for broker and database."""
    (own := folder / name).mkdir()
    place = Place(f"embedded:///{folder}/broker.db", f"sqlite:///{folder}/effects.db", name, own)
    return SharingApp(place)


def kill_a_worker(app: SharingApp, killed: set[int], running: Started) -> None:
    """Publish further messages, and SIGKILL the worker whose handler began last, once ten have begun."""
    begun, published = len(app.tried()), len(app.confirmed)
    app.publish([f"{app.place.name}-{number}" for number in range(published, published + ROUND)])

    def reached() -> bool:
        tried = app.tried()
        return len(tried) >= begun + 10 and tried[-1][0] not in killed

    eventually(reached, "a worker that works", said=running.said)
    process = app.tried()[-1][0]
    os.kill(process, signal.SIGKILL)
    killed.add(process)


def torn(app: SharingApp, killed: set[int]) -> set[str]:
    """Return the messages that a killed worker had begun, and did not apply."""
    applied = {(process, identity) for identity, _, process in app.effects()}
    return {pair[1] for pair in app.tried() if pair[0] in killed and pair not in applied}


def test_two_apps_on_the_same_files_lose_and_double_nothing(tmp_path: Path, fresh: str) -> None:
    """Each message of each app has one effect after three SIGKILLs in each, none is charged, and the broker's file is empty."""
    apps = [sharing(tmp_path, f"{fresh}{letter}") for letter in "ab"]
    killed = set[int]()
    with (
        apps[0].program.started("run", "--processes", "2") as first,
        apps[1].program.started("run", "--processes", "2") as second,
    ):
        for _ in range(KILLS):
            for app, running in zip(apps, (first, second), strict=True):
                kill_a_worker(app, killed, running)
        for app, running in zip(apps, (first, second), strict=True):
            eventually(app.all_applied, "every event to be applied", said=running.said)
        for running in first, second:
            assert running.drain() == 0, running.said()
    for app in apps:
        assert app.judge() == fine()
        assert app.dead_letters() == []
    with closing(sqlite3.connect(tmp_path / "broker.db")) as file:
        assert file.execute("SELECT count(*) FROM oncemq_broker_deliveries").fetchone() == (0,)
    assert any(torn(app, killed) for app in apps), "no kill hit a unit that was under way"
