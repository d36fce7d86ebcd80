"""Tests of flight recorders and what is made of them, with processes that really die."""

import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from oncemq.engine.crash import suspects
from oncemq.engine.crash.flight_recorder import FLUSHING, IDLE, Crash, Recorder, read_crash
from oncemq.engine.crash.process_lock import ProcessLock
from oncemq.engine.crash.suspects import (
    SuspectBook,
    collect,
    collect_for,
    discard,
    open_recorder,
    recorder_path,
)
from oncemq.ledger import schema
from oncemq.ledger.database.engine import make_engine
from oncemq.message.envelope import Envelope

SCOPE = "shop.points"
TESTS = Path(__file__).parents[3]


def envelope(identity: str, key: str = "k") -> Envelope:
    """Return an envelope of which only key and identity matter."""
    return Envelope("main", "orders", "loyalty", key, None, identity, None, 1, {}, b"", None)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where a recorder writes."""
    return tmp_path / "one.recorder"


def test_an_idle_recorder_accuses_no_message(path: Path) -> None:
    """Between units nothing is running, whatever ran before."""
    recorder = Recorder(path)
    recorder.begin([envelope("a")])
    recorder.index[0] = 1
    recorder.index[0] = IDLE
    assert read_crash(path, SCOPE) is None


def test_a_fresh_recorder_accuses_no_message(path: Path) -> None:
    """A worker that never had a unit cannot have died of a message."""
    Recorder(path)
    assert read_crash(path, SCOPE) is None


def test_a_unit_that_has_not_begun_accuses_no_message(path: Path) -> None:
    """Identities are written before anything runs."""
    Recorder(path).begin([envelope("a")])
    assert read_crash(path, SCOPE) is None


def test_a_new_unit_clears_the_last_one(path: Path) -> None:
    """A worker that never said that it was idle does not accuse the first message of its next unit."""
    recorder = Recorder(path)
    recorder.begin([envelope("a")])
    recorder.index[0] = 1
    recorder.begin([envelope("b")])
    assert read_crash(path, SCOPE) is None


def test_the_running_item_is_the_culprit(path: Path) -> None:
    """Index 2 names the second message and no other."""
    recorder = Recorder(path)
    recorder.begin([envelope("a", "ka"), envelope("b", "kb"), envelope("c", "kc")])
    recorder.index[0] = 2
    assert read_crash(path, SCOPE) == Crash(SCOPE, (("kb", "b"),), known=True)


def test_while_flushing_the_whole_unit_is_under_suspicion(path: Path) -> None:
    """Saving and committing serve all messages together: no one is the known culprit."""
    recorder = Recorder(path)
    recorder.begin([envelope("a"), envelope("b")])
    recorder.index[0] = FLUSHING
    assert read_crash(path, SCOPE) == Crash(SCOPE, (("k", "a"), ("k", "b")), known=False)


@pytest.mark.parametrize("text", ["Ærø/42", "订单-7", "a\nb", "🛒:1", "x" * 4000])
def test_any_key_and_identity_can_be_read_back(path: Path, text: str) -> None:
    """Unicode, line ends and long identities survive."""
    recorder = Recorder(path)
    recorder.begin([envelope("first"), envelope(text, text)])
    recorder.index[0] = 2
    found = read_crash(path, SCOPE)
    assert found is not None
    assert found.suspects == ((text, text),)


def test_units_of_any_size_fit(path: Path) -> None:
    """A unit far beyond the file's first size is written, and smaller ones after it as well."""
    recorder = Recorder(path)
    big = [envelope(f"{number:05}" + "x" * 2000) for number in range(500)]
    recorder.begin(big)
    recorder.index[0] = 500
    found = read_crash(path, SCOPE)
    assert found is not None
    assert found.suspects == (("k", big[-1].identity),)
    recorder.begin([envelope("small")])
    recorder.index[0] = 1
    assert read_crash(path, SCOPE) == Crash(SCOPE, (("k", "small"),), known=True)


def test_a_torn_record_accuses_no_message(path: Path) -> None:
    """Identities that do not fit their checksum are not believed."""
    recorder = Recorder(path)
    recorder.begin([envelope("right")])
    recorder.index[0] = 1
    data = path.read_bytes()
    path.write_bytes(data.replace(b"right", b"wrong"))
    assert read_crash(path, SCOPE) is None


@pytest.mark.parametrize("content", [b"", b"x" * 10, b"\x01\x00\x00\x00" * 4, b"\xff" * 100])
def test_nonsense_accuses_no_message(path: Path, content: bytes) -> None:
    """A file that is no record is ignored."""
    path.write_bytes(content)
    assert read_crash(path, SCOPE) is None


def test_a_missing_file_accuses_no_message(path: Path) -> None:
    """Someone else may have read and removed it."""
    assert read_crash(path, SCOPE) is None


def test_closing_removes_the_file(path: Path) -> None:
    """A worker that ended in order leaves nothing, also when it is closed twice."""
    recorder = Recorder(path)
    recorder.close()
    recorder.close()
    assert not path.exists()


WRITER = """
import os
import sys
from pathlib import Path
from oncemq.message.envelope import Envelope
from oncemq.engine.crash.suspects import open_recorder
from oncemq.engine.crash.process_lock import ProcessLock
from oncemq.engine.crash.flight_recorder import IDLE

def write(state, truth):
    recorder = open_recorder(state, ProcessLock(state).name, "shop.points", 0)
    truth = open(truth, "r+b", buffering=0)
    unit = 0
    print(os.getpid(), flush=True)
    while True:
        unit += 1
        size = 1 + unit % 7
        items = [Envelope("m", "t", "g", f"key-{unit}", None, f"{unit}:{i}" + "x" * (unit * 37 % 500), None, 1, {}, b"", None)
                 for i in range(size)]
        recorder.begin(items)
        for i, item in enumerate(items):
            recorder.index[0] = i + 1
            os.pwrite(truth.fileno(), f"+{item.identity.rstrip('x'):<30}".encode(), 0)
            os.pwrite(truth.fileno(), f"-{item.identity.rstrip('x'):<30}".encode(), 0)
        recorder.index[0] = IDLE

# Forked, for a new import takes a hundred times as long as what is tested.
for line in sys.stdin:
    state, truth = line.split()
    child = os.fork()
    if not child:
        write(Path(state), truth)
    os.waitpid(child, 0)
    print("dead", flush=True)
"""


@pytest.mark.parametrize("chunk", range(4))
def test_killed_at_any_moment_the_record_is_whole_and_right(tmp_path: Path, chunk: int) -> None:
    """Fifteen processes each die by SIGKILL at a random moment: what ran then is what the record names."""
    draw = random.Random(chunk)
    with subprocess.Popen(
        [sys.executable, "-c", WRITER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    ) as writers:
        assert writers.stdin is not None
        assert writers.stdout is not None
        for number in range(15):
            state, truth = tmp_path / f"{number}", tmp_path / f"{number}.truth"
            truth.write_bytes(b"")
            writers.stdin.write(f"{state} {truth}\n")
            writer = int(writers.stdout.readline())
            threading.Event().wait(draw.uniform(0.001, 0.05))
            os.kill(writer, signal.SIGKILL)
            assert writers.stdout.readline() == "dead\n"
            last = truth.read_text()
            crashes = collect(state, SuspectBook(None, state))
            named = [crash.suspects[0][1].rstrip("x") for crash in crashes]
            assert len(named) <= 1
            if last.startswith("+"):
                assert named == [last[1:].strip()]


# What a dead process left behind


class Dead:
    """A process that died: its recorders stay, its lock does not."""

    def __init__(self, state: Path) -> None:
        self._state = state
        self.presence = ProcessLock(state)
        self._recorders: list[Recorder] = []

    def ran(self, *identities: str, index: int = 1, scope: str = SCOPE) -> None:
        """Leave the record of one worker."""
        number = len(self._recorders)
        recorder = open_recorder(self._state, self.presence.name, scope, number)
        recorder.begin([envelope(identity) for identity in identities])
        recorder.index[0] = index
        self._recorders.append(recorder)

    def die(self) -> None:
        """Give up the lock, as the system does for a process that ends in any way."""
        os.close(self.presence._file)
        self.presence._file = -1


@pytest.fixture
def dead(tmp_path: Path) -> Dead:
    """A process that is going to die."""
    return Dead(tmp_path)


@pytest.fixture
def book(tmp_path: Path) -> SuspectBook:
    """The book of an app without database."""
    return SuspectBook(None, tmp_path)


def test_the_only_running_message_is_charged(tmp_path: Path, dead: Dead, book: SuspectBook) -> None:
    """One worker, one handler: no doubt."""
    dead.ran("a", "b", index=2)
    dead.die()
    [crash] = collect(tmp_path, book)
    assert (crash.known, crash.suspects) == (True, (("k", "b"),))
    assert book.load(SCOPE) == {"b": 1}


def test_crashes_add_up(tmp_path: Path, book: SuspectBook) -> None:
    """Each further death of the same message counts."""
    for _ in range(3):
        dead = Dead(tmp_path)
        dead.ran("a")
        dead.die()
        collect(tmp_path, book)
    assert book.load(SCOPE) == {"a": 3}


def test_a_unit_that_was_committing_is_not_charged(tmp_path: Path, dead: Dead, book: SuspectBook) -> None:
    """All its messages will run alone, none has lost an attempt."""
    dead.ran("a", "b", index=FLUSHING)
    dead.die()
    [crash] = collect(tmp_path, book)
    assert not crash.known
    assert book.load(SCOPE) == {"a": 0, "b": 0}


def test_of_several_running_messages_none_is_charged(tmp_path: Path, dead: Dead, book: SuspectBook) -> None:
    """With two handlers in flight either may have killed the process."""
    dead.ran("a")
    dead.ran("b")
    dead.die()
    assert not any(crash.known for crash in collect(tmp_path, book))
    assert book.load(SCOPE) == {"a": 0, "b": 0}


def test_of_several_running_messages_the_former_suspect_is_charged(
    tmp_path: Path, dead: Dead, book: SuspectBook
) -> None:
    """It was running at both deaths; the other one at the second only."""
    book.note(Crash(SCOPE, (("k", "a"),), known=False))
    dead.ran("a")
    dead.ran("b")
    dead.die()
    collect(tmp_path, book)
    assert book.load(SCOPE) == {"a": 1, "b": 0}


def test_consumers_have_pages_of_their_own(tmp_path: Path, dead: Dead, book: SuspectBook) -> None:
    """The same identity at two consumers is two suspects."""
    dead.ran("a", scope="shop.mail/€")
    dead.die()
    collect(tmp_path, book)
    assert book.load("shop.mail/€") == {"a": 1}
    assert book.load(SCOPE) == {}


def test_a_living_process_is_left_alone(tmp_path: Path, dead: Dead, book: SuspectBook) -> None:
    """Anyone who holds its lock is at work, also with this very process id."""
    dead.ran("a")
    assert collect(tmp_path, book) == []
    assert read_crash(recorder_path(tmp_path, dead.presence.name, SCOPE, 0), SCOPE) is not None


def test_a_process_that_is_still_ending_is_waited_for(
    tmp_path: Path, dead: Dead, book: SuspectBook, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker gives its message to another process before its last lock is released; its crash is charged first."""
    dead.ran("b", "a", index=2)
    monkeypatch.setattr(suspects.time, "sleep", lambda _: dead.die())
    [crash] = collect_for(tmp_path, book, "another", SCOPE, {"a"})
    assert crash.known
    assert book.load(SCOPE) == {"a": 1}


@pytest.mark.parametrize(
    ("process", "scope", "identity"),
    [(None, SCOPE, "a"), ("another", "shop.mail", "a"), ("another", SCOPE, "b"), ("another", SCOPE, "c")],
    ids=["our own", "another consumer's", "not running now", "unknown"],
)
def test_what_others_do_with_other_messages_is_not_waited_for(
    process: str | None,
    scope: str,
    identity: str,
    tmp_path: Path,
    dead: Dead,
    book: SuspectBook,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Only a process that seems to run this very message may be ending because of it."""
    dead.ran("b", "a", index=2)
    monkeypatch.setattr(suspects.time, "sleep", lambda _: pytest.fail("it waits"))
    assert collect_for(tmp_path, book, process or dead.presence.name, scope, {identity}) == []


def test_a_process_that_goes_on_is_waited_for_shortly(
    tmp_path: Path, dead: Dead, book: SuspectBook, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may have lost only its connection, while its handler takes long."""
    dead.ran("a")
    monkeypatch.setattr(suspects, "_ENDING_WITHIN", 0.05)
    assert collect_for(tmp_path, book, "another", SCOPE, {"a"}) == []
    assert book.load(SCOPE) == {}


def test_a_dead_process_with_our_own_id_is_found(tmp_path: Path, dead: Dead, book: SuspectBook) -> None:
    """In a container every process has the id of its predecessor; `dead` has ours."""
    dead.ran("a")
    dead.die()
    assert dead.presence.name.startswith(f"{os.getpid()}-")
    assert len(collect(tmp_path, book)) == 1


def test_a_death_is_charged_once(tmp_path: Path, dead: Dead, book: SuspectBook) -> None:
    """What has been read is removed, the presence included."""
    dead.ran("a")
    dead.die()
    collect(tmp_path, book)
    assert collect(tmp_path, book) == []
    assert book.load(SCOPE) == {"a": 1}
    assert not [*tmp_path.glob("*.recorder"), *tmp_path.glob("*.alive")]


def test_a_process_ended_on_purpose_charges_no_message(tmp_path: Path, dead: Dead, book: SuspectBook) -> None:
    """Its records are removed unread."""
    dead.ran("a")
    dead.die()
    discard(tmp_path, os.getpid())
    assert collect(tmp_path, book) == []
    assert book.load(SCOPE) == {}


def test_discarding_one_process_keeps_the_others(tmp_path: Path, dead: Dead, book: SuspectBook) -> None:
    """Another process that died by itself is charged all the same."""
    dead.ran("a")
    dead.die()
    discard(tmp_path, os.getpid() + 1)
    assert len(collect(tmp_path, book)) == 1


def test_a_folder_that_is_not_there_holds_nothing(tmp_path: Path) -> None:
    """The very first start finds no state."""
    missing = tmp_path / "missing"
    assert collect(missing, SuspectBook(None, missing)) == []


def test_forgotten_suspects_are_gone(book: SuspectBook) -> None:
    """A message that reached its end is trusted again; the others are not."""
    book.note(Crash(SCOPE, (("k", "a"), ("k", "b")), known=False))
    book.clear(SCOPE, ["a", "never-seen"])
    assert book.load(SCOPE) == {"b": 0}


def test_a_broken_book_is_an_empty_one(tmp_path: Path, book: SuspectBook) -> None:
    """Half a file after a power cut keeps no one from starting."""
    (tmp_path / "suspects.json").write_text('{"shop.po')
    assert book.load(SCOPE) == {}


def test_the_book_is_written_by_one_at_a_time(tmp_path: Path) -> None:
    """A hundred crashes that four writers note at once are a hundred crashes."""
    ready = threading.Barrier(4)

    def write() -> None:
        book = SuspectBook(None, tmp_path)
        ready.wait()
        for _ in range(25):
            book.note(Crash(SCOPE, (("k", "a"),), known=True))

    writers = [threading.Thread(target=write) for _ in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert SuspectBook(None, tmp_path).load(SCOPE) == {"a": 100}


@pytest.fixture
def ledger_book(database_url: str, tmp_path: Path) -> Iterator[SuspectBook]:
    """The book of an app with a database, on each kind of it."""
    engine = make_engine(database_url)
    schema.create(engine, [])
    yield SuspectBook(engine, tmp_path)
    engine.dispose()


def test_the_ledger_keeps_the_same_book(ledger_book: SuspectBook, dead: Dead, tmp_path: Path) -> None:
    """Suspicion, charge and oblivion on every database."""
    ledger_book.note(Crash(SCOPE, (("k", "a"), ("k", "ü")), known=False))
    dead.ran("ü")
    dead.ran("z")
    dead.die()
    collect(tmp_path, ledger_book)
    assert ledger_book.load(SCOPE) == {"a": 0, "ü": 1, "z": 0}
    ledger_book.clear(SCOPE, ["a", "ü"])
    assert ledger_book.load(SCOPE) == {"z": 0}


def test_a_presence_is_left_once(tmp_path: Path) -> None:
    """Leaving removes the file, and may be repeated."""
    presence: Any = ProcessLock(tmp_path)
    presence.leave()
    presence.leave()
    assert list(tmp_path.iterdir()) == []
