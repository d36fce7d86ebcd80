"""A process follows the requests to reload in the ledger: which it obeys, and how the ledger knows it."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine, delete

from oncemq.cli.reload import ledger_requests
from oncemq.cli.reload.ledger_requests import LedgerRequests
from oncemq.ledger import schema
from oncemq.ledger.coordination import reloads
from oncemq.ledger.database.engine import make_engine
from oncemq.operate.configuration.history import Member, Occasion
from support.apps.program import eventually

HOUR = 3600.0


class Obeying:
    """Stands for the reloader: notes what it is asked."""

    def __init__(self) -> None:
        self.version = "v1"
        self.asked: list[Occasion] = []

    def ask(self, occasion: Occasion) -> None:
        """Note it."""
        self.asked.append(occasion)


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look all the time."""
    monkeypatch.setattr(ledger_requests, "READ_EVERY", 0.02)


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    """A ledger."""
    made = make_engine(f"sqlite:///{tmp_path}/shop.db")
    schema.create(made)
    yield made
    made.dispose()


def _ask(engine: Engine, who: str) -> int:
    with engine.begin() as connection:
        return reloads.ask(connection, "shop", who, "prices")


def _known(engine: Engine) -> list[str]:
    with engine.connect() as connection:
        return [each.version for each in reloads.supervisors(connection, "shop")]


@pytest.fixture
def reloader() -> Obeying:
    """What it obeys with."""
    return Obeying()


def _following(engine: Engine, reloader: Obeying, texts_read: float) -> LedgerRequests:
    made = LedgerRequests(engine, "shop", Member.this(), reloader, texts_read)  # type: ignore[arg-type]
    made.start()
    eventually(lambda: _known(engine), "it is signed on")
    return made


def test_requests_from_before_its_texts_were_read_are_met(engine: Engine, reloader: Obeying) -> None:
    """It runs what was to be taken over; later ones are obeyed once each, and it signs off at the end."""
    _ask(engine, "alice")
    following = _following(engine, reloader, time.monotonic() + HOUR)
    number = _ask(engine, "bob")
    eventually(lambda: reloader.asked, "it is asked")
    following.stop()
    assert reloader.asked == [Occasion("oncemq reload", "bob", "prices", number)]
    assert _known(engine) == []


def test_a_request_that_came_while_it_was_starting_is_obeyed(engine: Engine, reloader: Obeying) -> None:
    """Its text may be from before."""
    number = _ask(engine, "alice")
    following = _following(engine, reloader, time.monotonic() - HOUR)
    eventually(lambda: reloader.asked, "it is asked")
    following.stop()
    assert [each.request for each in reloader.asked] == [number]


def test_a_process_that_was_removed_signs_on_again_with_what_it_runs(
    engine: Engine, reloader: Obeying
) -> None:
    """Such as after a time without its database, or a restore."""
    following = _following(engine, reloader, time.monotonic())
    with engine.begin() as connection:
        connection.execute(delete(reloads.SUPERVISORS))
    reloader.version = "v2"
    eventually(lambda: _known(engine) == ["v2"], "it is signed on again")
    following.stop()


def test_processes_that_were_killed_here_are_signed_off(engine: Engine, reloader: Obeying) -> None:
    """Also one that had the same number in a container; those of other machines, and those that run, stay."""
    us = Member.this()
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    with engine.begin() as connection:
        for name, host, pid in (
            ("killed", us.host, ended.pid),
            ("before", us.host, os.getpid()),
            ("beside", us.host, os.getppid()),
            ("elsewhere", "web-2", ended.pid),
        ):
            reloads.sign_on(connection, "shop", name, host, pid, name)
    following = LedgerRequests(engine, "shop", us, reloader, time.monotonic())  # type: ignore[arg-type]
    following.start()
    eventually(lambda: sorted(_known(engine)) == ["beside", "elsewhere", "v1"], "they are signed off")
    following.stop()


def test_a_database_that_is_away_is_survived(
    engine: Engine, reloader: Obeying, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was asked meanwhile is obeyed when it is back."""
    following = _following(engine, reloader, time.monotonic())
    failing = True
    latest = reloads.latest
    tried = []

    def away(*arguments: object) -> object:
        tried.append(1)
        if failing:
            raise ledger_requests.SQLAlchemyError("away")
        return latest(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(reloads, "latest", away)
    number = _ask(engine, "alice")
    eventually(lambda: len(tried) > 2, "it has tried")
    assert reloader.asked == []
    failing = False
    eventually(lambda: reloader.asked, "it is asked")
    following.stop()
    assert [each.request for each in reloader.asked] == [number]
