"""A machine whose clock is not the database's says so."""

from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from oncemq.common.clock import SystemClock
from oncemq.engine.clock_skew import ClockWatch
from oncemq.ledger.database.connect import place
from oncemq.ledger.database.engine import make_engine
from oncemq.ledger.database.server_clock import LedgerClock
from oncemq.observe.events import Observer
from oncemq.observe.observers import Observers
from oncemq.testing.scripted import ScriptedAdapter
from support.engine import make_app


class _Skewed(SystemClock):
    def __init__(self, ahead: timedelta) -> None:
        self.ahead = ahead

    def now(self) -> datetime:
        return super().now() + self.ahead


class _Warnings(Observer):
    def __init__(self) -> None:
        self.warnings: list[str] = []

    def warned(self, text: str) -> None:
        self.warnings.append(text)


@pytest.mark.parametrize(
    ("ahead", "words"),
    [
        (timedelta(0), []),
        (timedelta(seconds=20), ["this machine's clock is 20s ahead of that of {place}: let NTP set it"]),
        (
            timedelta(days=-8),
            [
                (
                    "this machine's clock is 8d behind that of {place}: let NTP set it; from 5m on this process "
                    "purges nothing and takes nothing over there"
                )
            ],
        ),
    ],
    ids=str,
)
def test_people_are_warned_once(tmp_path: Path, ahead: timedelta, words: list[str]) -> None:
    """From one second on, with the consequence where there is one; the gauge shows the seconds."""
    engine = make_engine(f"sqlite:///{tmp_path}/clock.db")
    heard = _Warnings()
    plan = replace(make_app(ScriptedAdapter(), engine), clock=LedgerClock(_Skewed(ahead), engine))
    watch = ClockWatch(plan, Observers([heard]))
    watch.measure(engine)
    watch.look()
    assert heard.warnings == [text.format(place=place(engine)) for text in words]
    assert round(watch.skew() or 0.0) == round(ahead.total_seconds())
    engine.dispose()
