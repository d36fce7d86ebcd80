"""Deaths by a handler's hard time limit: recorded by the dying process, counted beside crashes, named by the dead letter."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine

from oncemq.contracts.checks import Effects
from oncemq.engine.crash.flight_recorder import FLUSHING, IDLE, Crash, Recorder, read_crash
from oncemq.engine.crash.process_lock import ProcessLock
from oncemq.engine.crash.suspects import SuspectBook, collect, open_recorder
from oncemq.ledger import schema
from oncemq.ledger.database.engine import make_engine
from oncemq.ledger.records.suspects import of_key, overruns
from oncemq.message import headers
from oncemq.message.envelope import Envelope
from oncemq.testing.scripted import ScriptedAdapter
from support.engine import make_app, make_consumer, running

SCOPE = "shop.points"


def envelope(identity: str, key: str = "k") -> Envelope:
    """Return an envelope of which only key and identity matter."""
    return Envelope("main", "orders", "loyalty", key, None, identity, None, 1, {}, b"", None)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where a recorder writes."""
    return tmp_path / "one.recorder"


@pytest.fixture
def ledger(database_url: str) -> Iterator[Engine]:
    """A database of each kind with a ledger."""
    engine = make_engine(database_url)
    schema.create(engine, [])
    yield engine
    engine.dispose()


def die(state: Path, identity: str, *, overrun: bool) -> None:
    """Leave what a process leaves behind that died while a message ran."""
    presence: Any = ProcessLock(state)
    recorder = open_recorder(state, presence.name, SCOPE, 0)
    recorder.begin([envelope(identity)])
    recorder.index[0] = 1
    if overrun:
        recorder.overrun()
    presence.let_go()


def test_an_overrun_is_read_back(path: Path) -> None:
    """A handler whose hard time limit ends the process is told from one that crashes it."""
    recorder = Recorder(path)
    recorder.begin([envelope("a"), envelope("b")])
    recorder.index[0] = 2
    recorder.overrun()
    assert read_crash(path, SCOPE) == Crash(SCOPE, (("k", "b"),), known=True, overrun=True)


@pytest.mark.parametrize("index", [IDLE, FLUSHING])
def test_an_overrun_accuses_no_message_that_has_ended(path: Path, index: int) -> None:
    """The handler returned while the watchdog was about to end the process."""
    recorder = Recorder(path)
    recorder.begin([envelope("a")])
    recorder.index[0] = index
    before = read_crash(path, SCOPE)
    recorder.overrun()
    assert read_crash(path, SCOPE) == before


def test_overruns_are_counted_beside_crashes(ledger: Engine, tmp_path: Path) -> None:
    """Two of three deaths by the hard limit: both numbers are kept, and forgotten together."""
    for book in (SuspectBook(ledger, tmp_path), SuspectBook(None, tmp_path)):
        for overrun in (True, False, True):
            die(tmp_path, "a", overrun=overrun)
            collect(tmp_path, book)
        assert book.load(SCOPE) == {"a": 3, overruns("a"): 2}
        book.clear(SCOPE, ["a"])
        assert book.load(SCOPE) == {}


def test_inspection_shows_overruns_in_the_row_of_their_message(ledger: Engine, tmp_path: Path) -> None:
    """One row a message, with both numbers."""
    book = SuspectBook(ledger, tmp_path)
    book.note(Crash(SCOPE, (("k", "a"),), known=True, overrun=True))
    book.note(Crash(SCOPE, (("k", "a"),), known=True))
    book.note(Crash(SCOPE, (("k", "b"),), known=True))
    with ledger.connect() as connection:
        rows = of_key(connection, "k")
    assert [(row["identity"], row["crashes"], row["hard_limits"]) for row in rows] == [
        ("a", 2, 1),
        ("b", 1, 0),
    ]


@pytest.mark.parametrize(
    ("overruns", "reason", "told"),
    [
        (3, "hard-limit", "the handler ran longer than the hard limit of 1m 3 times"),
        (
            1,
            "crashed",
            "a process died 3 times while this message ran, 1 of them because its handler ran longer than the hard limit of 1m",
        ),
        (0, "crashed", "a process died 3 times while this message ran"),
    ],
)
def test_a_dead_letter_says_what_ended_the_processes(
    ledger: Engine,
    tmp_path: Path,
    overruns: int,
    reason: str,
    told: str,
) -> None:
    """The hard time limit with its length, crashes, or how many of each."""
    adapter, book = ScriptedAdapter(), SuspectBook(ledger, tmp_path)
    for number in range(3):
        book.note(Crash(SCOPE, (("k", "1"),), known=True, overrun=number < overruns))
    limit = timedelta(minutes=1)
    consumer = make_consumer(lambda order: None, effects=Effects.EXTERNAL, hard_limit=limit)
    with running(make_app(adapter, ledger, consumer, state=tmp_path)):
        adapter.deliver(b'{"id": 1, "key": "k"}')
        adapter.wait_until(lambda a: len(a.dead) == 1)
    [letter] = adapter.dead
    assert (letter.headers[headers.REASON], letter.headers[headers.ERROR_TEXT]) == (reason, told)
    assert letter.headers[headers.ATTEMPT] == "3"
    assert book.load(SCOPE) == {}
