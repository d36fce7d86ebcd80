"""Background work is done by one process at a time, and never for ever."""

import threading
from dataclasses import replace
from datetime import timedelta

from sqlalchemy import Engine, event, exists, literal_column, text

from oncemq.contracts.strategy import UpkeepTask
from oncemq.testing.fake_clock import FakeClock
from oncemq.upkeep.runner import Upkeep

DEADLINE = 30.0


def task(done: list[str], name: str = "sweep", more: int = 0) -> UpkeepTask:
    """Return a task that writes down each step and has `more` to do."""

    def step(_engine: Engine) -> bool:
        done.append(name)
        return len(done) <= more

    return UpkeepTask(name, timedelta(minutes=1), step)


def test_tasks_run_when_they_are_due(engine: Engine, clock: FakeClock) -> None:
    """At once, then after every pause."""
    done: list[str] = []
    upkeep = Upkeep(engine, [task(done)], clock)
    assert upkeep.run_due() == 60
    assert upkeep.run_due() == 60
    clock.advance(timedelta(seconds=61))
    upkeep.run_due()
    assert done == ["sweep"] * 2


def test_a_task_with_more_to_do_goes_on(engine: Engine, clock: FakeClock) -> None:
    """Steps follow each other until one says that nothing is left."""
    done: list[str] = []
    Upkeep(engine, [task(done, more=4)], clock).run_due()
    assert len(done) == 5


def working(clock: FakeClock, done: list[str], name: str, seconds: float, rest: float | None) -> UpkeepTask:
    """Return a task that always has more to do, and takes so long for each step."""

    def step(_engine: Engine) -> bool:
        done.append(name)
        clock.advance(timedelta(seconds=seconds))
        return True

    asked = None if rest is None else lambda: rest
    return UpkeepTask(name, timedelta(minutes=1), step, everywhere=True, rest=asked)


def test_background_work_rests_longer(engine: Engine, clock: FakeClock) -> None:
    """For so many times as long as its step took; other work rests twice as long."""
    done: list[str] = []
    gentle = Upkeep(engine, [working(clock, done, "purge", 0.25, 9.0)], clock)
    assert (gentle.run_due(), gentle.run_due(), done) == (2.25, 2.25, ["purge"])
    usual = Upkeep(engine, [working(clock, done, "sweep", 0.25, None)], clock)
    assert usual.run_due() == 0.5
    clock.advance(timedelta(seconds=2.25))
    gentle.run_due()
    assert done == ["purge", "sweep", "purge"]


def test_all_gentle_tasks_share_one_rest(engine: Engine, clock: FakeClock) -> None:
    """Three purges disturb no more than one, and each has its turn."""
    done: list[str] = []
    upkeep = Upkeep(engine, [working(clock, done, name, 0.25, 9.0) for name in "abc"], clock)
    for _ in range(7):
        clock.advance(timedelta(seconds=upkeep.run_due()))
    assert "".join(done) == "abcabca"


def test_what_must_hurry_is_not_held_up_by_the_rest_of_another(engine: Engine, clock: FakeClock) -> None:
    """A purge into whose table too much comes goes on beside one that has all the time in the world."""
    done: list[str] = []
    tasks = [working(clock, done, "gentle", 0.25, 9.0), working(clock, done, "hurried", 0.25, 0.0)]
    upkeep, until = Upkeep(engine, tasks, clock), clock.monotonic() + 10
    original = upkeep._step

    def step(task: UpkeepTask) -> None:
        original(task)
        if clock.monotonic() >= until:
            upkeep._stopping.set()

    upkeep._step = step  # type: ignore[method-assign]
    upkeep.run_due()
    assert done.count("hurried") >= 20


def test_a_long_step_without_a_result_begins_no_long_rest(engine: Engine, clock: FakeClock) -> None:
    """All purges of a database share the rest, and a lock time-out of one is no work of the others."""
    done: list[str] = []
    assert Upkeep(engine, [working(clock, done, "purge", 30.0, 9.0)], clock).run_due() == 60.0


def test_a_long_task_keeps_nothing_waiting(engine: Engine, clock: FakeClock) -> None:
    """While a purge has more and more to do, what is due each second is done each second."""
    done: list[str] = []
    sweep = UpkeepTask(
        "sweep", timedelta(seconds=1), lambda _engine: bool(done.append("sweep")), everywhere=True
    )
    upkeep = Upkeep(engine, [working(clock, done, "purge", 0.05, 9.0), sweep], clock)
    began = clock.monotonic()
    while clock.monotonic() < began + 20:
        clock.advance(timedelta(seconds=upkeep.run_due() + 0.001))  # the clock knows no less
    assert done.count("sweep") >= 19
    assert done.count("purge") >= 39


def test_a_lease_is_not_asked_for_at_each_step(engine: Engine, clock: FakeClock) -> None:
    """A thousand batches are not a thousand more commits; but no process trusts a lease whose half is over."""
    done, asked = list[str](), list[str]()
    event.listen(
        engine,
        "before_cursor_execute",
        lambda *told: asked.append(told[2]) if "oncemq_leases" in told[2] else None,
    )

    def step(_engine: Engine) -> bool:
        done.append("purge")
        clock.advance(timedelta(seconds=1))
        return len(done) < 100

    upkeep = Upkeep(engine, [UpkeepTask("purge", timedelta(minutes=1), step)], clock)
    while len(done) < 100:
        clock.advance(timedelta(seconds=upkeep.run_due()))
    assert len([statement for statement in asked if statement.startswith("UPDATE")]) == 5


def test_one_process_does_a_task(engine: Engine, clock: FakeClock) -> None:
    """The second finds the lease taken, until it has expired."""
    first, second = list[str](), list[str]()
    early, late = Upkeep(engine, [task(first)], clock), Upkeep(engine, [task(second)], clock)
    for _ in range(3):
        early.run_due()
        late.run_due()
        clock.advance(timedelta(seconds=61))
    assert (len(first), len(second)) == (3, 0)
    clock.advance(timedelta(minutes=5))
    late.run_due()
    assert len(second) == 1


def test_a_failing_task_is_told_and_does_not_stop_others(engine: Engine, clock: FakeClock) -> None:
    """The error goes to anyone who listens; the next task runs, the failing one is due again."""
    done: list[str] = []
    told: list[tuple[str, BaseException]] = []

    def fail(_engine: Engine) -> bool:
        raise RuntimeError("not today")

    tasks = [UpkeepTask("broken", timedelta(minutes=1), fail), task(done)]
    upkeep = Upkeep(engine, tasks, clock, lambda doing, error: told.append((doing, error)))
    upkeep.run_due()
    clock.advance(timedelta(seconds=61))
    upkeep.run_due()
    assert done == ["sweep"] * 2
    assert [(doing, str(error)) for doing, error in told] == [("upkeep 'broken'", "not today")] * 2


def test_stopping_gives_the_lease_back(engine: Engine, clock: FakeClock) -> None:
    """After an orderly stop a successor need not wait for the lease to expire."""
    ran = threading.Event()

    def step(_engine: Engine) -> bool:
        ran.set()
        return False

    first = Upkeep(engine, [UpkeepTask("sweep", timedelta(minutes=1), step)], clock)
    first.start()
    assert ran.wait(DEADLINE)
    first.stop()
    first.stop()
    done: list[str] = []
    Upkeep(engine, [task(done)], clock).run_due()
    assert done == ["sweep"]


def looks(name: str, done: list[str], *, due: bool = True) -> UpkeepTask:
    """Return a task that one process does each second and the others every five, if a row says that it is wanted."""
    return UpkeepTask(
        name,
        timedelta(seconds=1),
        lambda _engine: bool(done.append(name)),  # type: ignore[func-returns-value]
        everywhere=True,
        pace=timedelta(seconds=5),
        wanted=lambda _dialect: literal_column("1") == literal_column("1" if due else "2"),
    )


def passed(clock: FakeClock, seconds: int, *processes: Upkeep) -> None:
    """Let so many seconds pass in each of these processes."""
    for _ in range(seconds):
        for upkeep in processes:
            upkeep.run_due()
        clock.advance(timedelta(seconds=1))


def test_one_process_looks_often_and_the_others_at_their_own_pace(engine: Engine, clock: FakeClock) -> None:
    """What an idle app asks does not grow with the number of its processes as it would if all looked each second."""
    first, second = list[str](), list[str]()
    passed(clock, 20, *(Upkeep(engine, [looks("due", done)], clock) for done in (first, second)))
    assert (len(first), len(second)) == (20, 4)


def test_another_looks_often_when_that_process_has_died(engine: Engine, clock: FakeClock) -> None:
    """It goes on at its own pace at once, and takes the lease when that has ended."""
    first, second = list[str](), list[str]()
    died, lives = (Upkeep(engine, [looks("due", done)], clock) for done in (first, second))
    passed(clock, 1, died, lives)
    passed(clock, 30, lives)
    assert len(second) == 7
    passed(clock, 15, lives)
    assert len(second) >= 17


def test_what_is_due_together_is_asked_in_one_statement(engine: Engine, clock: FakeClock) -> None:
    """And only what has something to do is run."""
    done, asked = list[str](), list[str]()
    tasks = [looks("some", done), looks("none", done, due=False), looks("more", done)]
    upkeep = Upkeep(engine, tasks, clock)
    upkeep.run_due()
    event.listen(
        engine, "before_cursor_execute", lambda *told: asked.append(told[2]) if told[2] != "BEGIN" else None
    )
    passed(clock, 3, upkeep)
    assert (sorted(done), len(asked)) == (["more"] * 3 + ["some"] * 3, 2)


def test_a_condition_that_fails_stops_no_other_task(engine: Engine, clock: FakeClock) -> None:
    """The error is told, and each task looks for itself."""
    done: list[str] = []
    told: list[str] = []
    broken = replace(
        looks("broken", done), wanted=lambda _dialect: exists(text("1 FROM oncemq_no_such_table"))
    )
    upkeep = Upkeep(engine, [looks("sound", done), broken], clock, lambda doing, _error: told.append(doing))
    upkeep.run_due()
    assert (sorted(done), told) == (["broken", "sound"], ["asking what is due"])
