"""The scheduler against a model that keeps one list for each key, by random steps and with several threads."""

import random
import threading
from collections import defaultdict
from datetime import timedelta

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from oncemq.common.clock import SystemClock
from oncemq.engine.consumer.scheduler import Scheduler
from oncemq.message.envelope import Delivery, Message
from oncemq.testing.fake_clock import FakeClock

KEYS = "abc"


def delivery(key: str, number: int, generation: int = 1) -> Delivery:
    """Return the delivery `number` of `key`."""
    made = Delivery(Message("orders", b""), token=number, generation=generation)
    made.key = key
    return made


class AgainstModel(RuleBasedStateMachine):
    """Every delivery leaves in its key's arrival order, and a key is with one owner or asleep or free."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = FakeClock()
        self.scheduler = Scheduler(self.clock)
        self.queues: dict[str, list[Delivery]] = defaultdict(list)
        self.held: list[list[Delivery]] = []
        self.asleep: dict[str, float] = {}
        self.number = 0
        self.generation = 1

    def owned(self) -> set[str]:
        """Return the keys that someone owns."""
        return {delivery.key for taken in self.held for delivery in taken}

    def free(self, key: str) -> bool:
        """Return whether a taker may own `key` now."""
        return key not in self.owned() and self.asleep.get(key, 0.0) <= self.clock.monotonic()

    def forget_void(self) -> None:
        """Drop what a lost connection had brought."""
        for key, queue in self.queues.items():
            self.queues[key] = [delivery for delivery in queue if delivery.generation >= self.generation]

    @rule(key=st.sampled_from(KEYS))
    def put(self, key: str) -> None:
        """A message arrives."""
        self.number += 1
        made = delivery(key, self.number, self.generation)
        self.queues[key].append(made)
        self.scheduler.put([made])

    @rule(limit=st.integers(1, 4))
    def take(self, limit: int) -> None:
        """A worker takes: the head of each free key's queue, as much as there is up to the limit."""
        possible = sum(len(queue) for key, queue in self.queues.items() if self.free(key))
        taken = self.scheduler.take(limit, 0)
        assert len(taken) == min(limit, possible)
        for delivery in taken:
            assert self.free(delivery.key)
            assert self.queues[delivery.key].pop(0) is delivery
        if taken:
            self.held.append(taken)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def done(self, data: st.DataObject) -> None:
        """A worker is done: some go back, some of their keys sleep."""
        taken = self.held.pop(data.draw(st.integers(0, len(self.held) - 1)))
        back: list[Delivery] = []
        sleep: dict[str, float] = {}
        for key in dict.fromkeys(delivery.key for delivery in taken):
            mine = [delivery for delivery in taken if delivery.key == key]
            kept = mine[data.draw(st.integers(0, len(mine))) :]
            back += kept
            self.queues[key][:0] = kept
            if kept and data.draw(st.booleans()):
                sleep[key] = data.draw(st.sampled_from([1.0, 2.0, 3.0]))
                self.asleep[key] = self.clock.monotonic() + sleep[key]
        self.forget_void()
        self.scheduler.done(taken, back, sleep)

    @rule(seconds=st.integers(1, 3))
    def advance(self, seconds: int) -> None:
        """Time passes."""
        self.clock.advance(timedelta(seconds=seconds))

    @rule()
    def lose(self) -> None:
        """The connection is lost, and a new one made."""
        self.scheduler.void(self.generation)
        self.generation += 1
        self.forget_void()

    @invariant()
    def nothing_is_lost(self) -> None:
        """Everything that is not void waits, and in its place."""
        waiting = [
            delivery for delivery in self.scheduler.snapshot() if delivery.generation >= self.generation
        ]
        assert {delivery.token for delivery in waiting} == {
            delivery.token for queue in self.queues.values() for delivery in queue
        }


TestAgainstModel = AgainstModel.TestCase
TestAgainstModel.settings = settings(
    max_examples=200, stateful_step_count=40, deadline=None, derandomize=True
)


def test_order_and_single_ownership_with_threads() -> None:
    """Four takers that give back at random see each key's messages in order, and never two at the same time."""
    scheduler, draw = Scheduler(SystemClock()), random.Random(7)
    seen: dict[str, list[int]] = defaultdict(list)
    busy: set[str] = set()
    wrong: list[str] = []
    total = 3000
    finished = threading.Event()

    def work(seed: int) -> None:
        mine = random.Random(seed)
        while not finished.is_set():
            taken = scheduler.take(mine.randint(1, 8), 0.05, 4)
            keys = {delivery.key for delivery in taken}
            if keys & busy:
                wrong.append(f"two owners of {keys & busy}")
            busy.update(keys)
            cut = {key: mine.randint(1, 4) for key in keys}
            back = []
            for delivery in taken:
                cut[delivery.key] -= 1
                if cut[delivery.key] < 0:
                    back.append(delivery)
                else:
                    seen[delivery.key].append(delivery.token)
            busy.difference_update(keys)
            scheduler.done(taken, back, {key: 0.001 for key in keys if mine.random() < 0.05})
            if sum(map(len, seen.values())) == total:
                finished.set()

    threads = [threading.Thread(target=work, args=(seed,), daemon=True) for seed in range(4)]
    for number in range(total):
        if number == total // 2:
            for thread in threads:
                thread.start()
        scheduler.put([delivery(draw.choice("abcdefghij"), number)])
    ended = finished.wait(20)
    finished.set()
    for thread in threads:
        thread.join(5)
    assert ended
    assert wrong == []
    assert all(numbers == sorted(numbers) for numbers in seen.values())
