"""Tests of the scheduler: which delivery may run next."""

import threading
from datetime import timedelta

import pytest

from oncemq.engine.consumer.scheduler import Scheduler
from oncemq.message.envelope import Delivery, Message
from oncemq.testing.fake_clock import FakeClock


@pytest.fixture
def clock() -> FakeClock:
    """A clock that the test moves."""
    return FakeClock()


@pytest.fixture
def scheduler(clock: FakeClock) -> Scheduler:
    """An empty scheduler."""
    return Scheduler(clock)


def delivery(name: str, *, generation: int = 1, expires_at: float | None = None) -> Delivery:
    """Return a delivery called `name`, whose first letter is its key."""
    made = Delivery(
        Message("orders", name.encode()), token=name, generation=generation, expires_at=expires_at
    )
    made.key = name[0]
    return made


def fill(scheduler: Scheduler, names: str) -> None:
    """Put a delivery for each word of `names`."""
    for name in names.split():
        scheduler.put([delivery(name)])


def names(deliveries: list[Delivery]) -> str:
    """Return the names of `deliveries`, in order."""
    return " ".join(delivery.token for delivery in deliveries)


def test_takes_in_arrival_order(scheduler: Scheduler) -> None:
    """One take holds messages of several keys in the order in which they came."""
    fill(scheduler, "a1 b1 a2 c1 b2")
    assert names(scheduler.take(10, 0)) == "a1 b1 a2 c1 b2"


def test_takes_no_more_than_the_limit(scheduler: Scheduler) -> None:
    """A take stops at its limit and leaves the rest."""
    fill(scheduler, "a1 b1 c1")
    assert names(scheduler.take(2, 0)) == "a1 b1"
    assert scheduler.waiting() == 1


def test_a_key_has_one_owner(scheduler: Scheduler) -> None:
    """What waits behind an owned key is not handed to another taker."""
    fill(scheduler, "a1 a2 b1")
    scheduler.take(1, 0)
    assert names(scheduler.take(10, 0)) == "b1"


def test_an_owned_key_is_free_after_done(scheduler: Scheduler) -> None:
    """The next message of a key runs when its owner is done."""
    fill(scheduler, "a1 a2")
    first = scheduler.take(1, 0)
    assert scheduler.take(10, 0) == []
    scheduler.done(first)
    assert names(scheduler.take(10, 0)) == "a2"


def test_a_late_arrival_does_not_overtake_what_waited_before(scheduler: Scheduler) -> None:
    """A message that arrives while its key is owned runs after those that came before it."""
    fill(scheduler, "a1 a2 a3")
    first = scheduler.take(1, 0)
    scheduler.put([delivery("a4")])
    scheduler.done(first)
    assert names(scheduler.take(10, 0)) == "a2 a3 a4"


def test_a_late_arrival_does_not_overtake_across_workers(scheduler: Scheduler) -> None:
    """Order holds when another worker has looked at the queue while the key was owned."""
    fill(scheduler, "a1 a2 b1 a3")
    first = scheduler.take(1, 0)
    scheduler.put([delivery("a4")])
    other = scheduler.take(1, 0)
    scheduler.put([delivery("a5")])
    scheduler.done(first)
    assert names(other) == "b1"
    assert names(scheduler.take(10, 0)) == "a2 a3 a4 a5"


def test_what_goes_back_runs_first(scheduler: Scheduler) -> None:
    """Deliveries that go back stand before everything else of their key, in order."""
    fill(scheduler, "a1 a2 a3 a4")
    taken = scheduler.take(3, 0)
    scheduler.take(3, 0)  # another worker comes by and finds the key owned
    scheduler.done(taken, taken[1:])
    assert names(scheduler.take(10, 0)) == "a2 a3 a4"


def test_a_sleeping_key_does_not_run(scheduler: Scheduler) -> None:
    """A key that is put to sleep is not taken, also not its later arrivals."""
    fill(scheduler, "a1 b1")
    taken = scheduler.take(10, 0)
    scheduler.done(taken, taken[:1], {"a": 5.0})
    fill(scheduler, "a2 b2")
    assert names(scheduler.take(10, 0)) == "b2"


def test_a_sleeping_key_wakes(scheduler: Scheduler, clock: FakeClock) -> None:
    """A key runs again, in order, when its sleep is over."""
    fill(scheduler, "a1")
    taken = scheduler.take(10, 0)
    scheduler.done(taken, taken, {"a": 5.0})
    fill(scheduler, "a2")
    clock.advance(timedelta(seconds=5))
    assert names(scheduler.take(10, 0)) == "a1 a2"


def test_a_sleeping_key_can_be_woken(scheduler: Scheduler, clock: FakeClock) -> None:
    """What it waited for has come: it runs now, and once; its next sleep is a whole one."""
    fill(scheduler, "a1")
    first = scheduler.take(1, 0)
    scheduler.done(first, back=first, sleep={"a": 5.0})
    scheduler.wake("a")
    again = scheduler.take(10, 0)
    assert names(again) == "a1"
    clock.advance(timedelta(seconds=3))
    scheduler.done(again, back=again, sleep={"a": 5.0})
    clock.advance(timedelta(seconds=3))
    assert scheduler.take(10, 0) == []
    clock.advance(timedelta(seconds=3))
    assert names(scheduler.take(10, 0)) == "a1"


def test_a_key_that_is_woken_before_it_sleeps_does_not_sleep(scheduler: Scheduler) -> None:
    """What it waits for may come while its owner is still busy; that counts for this sleep alone."""
    fill(scheduler, "a1")
    first = scheduler.take(1, 0)
    scheduler.wake("a")
    scheduler.done(first, back=first, sleep={"a": 5.0})
    again = scheduler.take(10, 0)
    assert names(again) == "a1"
    scheduler.done(again, back=again, sleep={"a": 5.0})
    assert scheduler.take(10, 0) == []


def test_waking_an_unknown_key_does_nothing(scheduler: Scheduler) -> None:
    """Anyone who wakes may be late."""
    scheduler.wake("a")
    fill(scheduler, "a1")
    first = scheduler.take(1, 0)
    scheduler.done(first, back=first, sleep={"a": 5.0})
    assert scheduler.take(10, 0) == []


def test_one_per_key_takes_one_of_each(clock: FakeClock) -> None:
    """Where a unit may hold one item of a key only, the others wait for the next take."""
    scheduler = Scheduler(clock, one_per_key=True)
    fill(scheduler, "a1 a2 b1 a3")
    first = scheduler.take(10, 0)
    scheduler.done(first)
    assert names(first) == "a1 b1"
    assert names(scheduler.take(10, 0)) == "a2"


def test_a_lost_generation_is_not_handed_out(scheduler: Scheduler) -> None:
    """Deliveries of a lost connection are forgotten; those of the next one are not."""
    scheduler.put([delivery("a1", generation=1)])
    scheduler.put([delivery("a2", generation=2)])
    scheduler.void(1)
    assert names(scheduler.take(10, 0)) == "a2"


def test_a_generation_lost_alone_takes_no_other_with_it(scheduler: Scheduler) -> None:
    """What came by an earlier or later assignment of the broker's is still handed out."""
    for generation in (1, 2, 3):
        scheduler.put([delivery(f"a{generation}", generation=generation)])
    scheduler.void(2, alone=True)
    assert names(scheduler.take(10, 0)) == "a1 a3"


def test_the_latest_thousand_generations_lost_alone_are_remembered(scheduler: Scheduler) -> None:
    """A queue that changes hands for months must not cost more with every time."""
    for generation in range(1, 1002):
        scheduler.void(generation, alone=True)
    lost = [
        generation
        for generation in (1, 2, 1001, 1002)
        if scheduler.is_void(delivery("a", generation=generation))
    ]
    assert lost == [2, 1001]


def test_a_generation_stays_lost(scheduler: Scheduler) -> None:
    """A delivery of a lost connection that arrives late is not handed out either."""
    scheduler.void(2)
    scheduler.put([delivery("a1", generation=1)])
    assert scheduler.take(10, 0) == []


def test_void_deliveries_that_go_back_are_forgotten(scheduler: Scheduler) -> None:
    """A delivery that was taken before its connection was lost does not come again from here."""
    fill(scheduler, "a1")
    taken = scheduler.take(1, 0)
    scheduler.void(1)
    scheduler.done(taken, taken)
    assert scheduler.take(10, 0) == []


def test_an_expired_lease_is_not_handed_out(scheduler: Scheduler, clock: FakeClock) -> None:
    """A delivery that the broker has given to someone else by now is forgotten."""
    scheduler.put([delivery("a1", expires_at=10.0)])
    scheduler.put([delivery("b1", expires_at=30.0)])
    clock.advance(timedelta(seconds=20))
    assert names(scheduler.take(10, 0)) == "b1"


def test_a_share_leaves_some_for_siblings(scheduler: Scheduler) -> None:
    """With four siblings a take holds a quarter of what is ready."""
    fill(scheduler, " ".join(f"{letter}1" for letter in "abcdefgh"))
    assert names(scheduler.take(100, 0, 4)) == "a1 b1"


def test_a_share_is_at_least_one(scheduler: Scheduler) -> None:
    """A lone message is taken whatever the number of siblings."""
    fill(scheduler, "a1")
    assert names(scheduler.take(100, 0, 32)) == "a1"


def test_close_returns_what_waits(scheduler: Scheduler) -> None:
    """Closing hands out everything that was never started, sleeping keys included, void ones not."""
    scheduler.put([delivery("x1", generation=0)])
    fill(scheduler, "a1 a2 b1")
    scheduler.void(0)
    taken = scheduler.take(1, 0)
    scheduler.done(taken, taken, {"a": 60.0})
    assert sorted(delivery.token for delivery in scheduler.close()) == ["a1", "a2", "b1"]


def test_close_returns_each_keys_messages_in_their_order(scheduler: Scheduler) -> None:
    """A broker that puts back what it is given in that order delivers it so: what slept is older than what waited."""
    fill(scheduler, "a1 a2 b1")
    taken = scheduler.take(1, 0)
    scheduler.done(taken, taken, {"a": 60.0})
    assert [delivery.token for delivery in scheduler.close() if delivery.key == "a"] == ["a1", "a2"]


def test_nothing_is_taken_after_close(scheduler: Scheduler) -> None:
    """A closed scheduler hands out nothing, also not what arrives later."""
    scheduler.close()
    fill(scheduler, "a1")
    assert scheduler.take(10, 0) == []


def test_a_waiting_taker_is_woken_by_a_put(scheduler: Scheduler) -> None:
    """A taker that waits gets what arrives, long before its time-out."""
    got: list[Delivery] = []
    ready = threading.Event()

    def take() -> None:
        ready.set()
        while not got:
            got.extend(scheduler.take(10, 30))

    thread = threading.Thread(target=take, daemon=True)
    thread.start()
    ready.wait(10)
    fill(scheduler, "a1")
    thread.join(10)
    assert names(got) == "a1"


def test_idle_only_when_nothing_waits_or_runs(scheduler: Scheduler, clock: FakeClock) -> None:
    """Idle time counts from the last arrival, and is 0 while anything waits or is owned."""
    fill(scheduler, "a1")
    clock.advance(timedelta(seconds=3))
    waiting = scheduler.idle_for()
    taken = scheduler.take(1, 0)
    running = scheduler.idle_for()
    scheduler.done(taken)
    assert (waiting, running, scheduler.idle_for()) == (0.0, 0.0, 3.0)


def test_no_messages_end_no_idleness(clock: FakeClock, scheduler: Scheduler) -> None:
    """An adapter that asks its broker and gets nothing does not keep the consumer from coming to rest."""
    clock.advance(timedelta(seconds=3))
    scheduler.put([])
    assert scheduler.idle_for() == 3.0


def test_a_released_generation_is_handed_back(scheduler: Scheduler) -> None:
    """What waits of it is returned in order and never handed out; other generations go on."""
    scheduler.put([delivery("a1", generation=1), delivery("b1", generation=2), delivery("a2", generation=1)])
    assert names(scheduler.release(1)) == "a1 a2"
    assert names(scheduler.take(10, 0)) == "b1"
    assert scheduler.release(1) == []


def test_what_a_worker_returns_of_a_released_generation_is_handed_back(scheduler: Scheduler) -> None:
    """It was taken before, and must not be forgotten: the adapter waits for each of them."""
    scheduler.put([delivery("a1", generation=1), delivery("a2", generation=1), delivery("b1", generation=2)])
    taken = scheduler.take(2, 0)
    assert names(taken) == "a1 a2"
    assert scheduler.release(1) == []
    scheduler.done(taken, taken[1:])
    assert names(scheduler.take(10, 0)) == "b1"
    assert names(scheduler.release(1)) == "a2"


def test_deliveries_of_a_key_that_is_owned_are_released_too(scheduler: Scheduler) -> None:
    """Those that wait behind a running one in its key's own queue."""
    scheduler.put([delivery("a1", generation=1)])
    taken = scheduler.take(1, 0)
    scheduler.put([delivery("a2", generation=1)])
    scheduler.take(1, 0)
    assert names(scheduler.release(1)) == "a2"
    scheduler.done(taken)
    assert scheduler.take(10, 0) == []
