"""The rules of the model: what people, brokers, databases and machines do to a consumer, in any order."""

import json
from datetime import timedelta

from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule
from sqlalchemy import delete, select

from oncemq.ledger.records import history, processed, states
from oncemq.ledger.records.row_mutexes import TABLE as LOCKED_ROWS
from oncemq.message.envelope import Message
from oncemq.upkeep.purging import purge_tasks
from support.effects import empty
from support.model.judge import CHAINS, REFUSED, Judge
from support.model.process import ATTEMPTS, FAILING, GOOD, SCOPE, STATES, WORKERS, Killed, Process

KEEP = timedelta(days=7)
LEDGER = (processed.TABLE, states.TABLE, history.TABLE, LOCKED_ROWS)
POINTS = ("received", "loaded", "handled", "saved", "before-commit", "committed", "before-ack", "ack-sent")
FAILING_POINTS = ("retry-published", "dead-letter-published")


SETTLING = ("acknowledge", "retry", "dead_letter")
ALL_TROUBLES = (
    ("crash", ""),
    ("lose", ""),
    *(("crash_at", point) for point in POINTS + FAILING_POINTS),
    *(("lose_at", point) for point in POINTS),
    *(("broker_away", call) for call in SETTLING),
    *(("half", call) for call in SETTLING),
    *(("database", fault) for fault in ("conflicts", "commits_fail", "answers_lost")),
)
TROUBLES = st.sampled_from(ALL_TROUBLES)
MESSAGES = st.tuples(
    st.integers(0, 2),
    st.integers(1, 6),
    st.lists(st.sampled_from([*GOOD, *FAILING, "reject"]), max_size=ATTEMPTS),
)

BATCHES = st.lists(MESSAGES, min_size=1, max_size=8)
TIMES = st.sampled_from([1, 1, 2, 3, 12, 40])


class Model(Judge):
    """The rules."""

    @initialize()
    def start(self) -> None:
        """Begin with empty tables and one process."""
        self.faults.reset()
        empty(self.engine)
        with self.engine.begin() as connection:
            for table in LEDGER:
                connection.execute(delete(table))
        self._boot()

    def _boot(self) -> None:
        self.process = Process(self.engine, self.clock, self.broker, CHAINS[self.chain], self.told)

    # What people do

    @rule(batch=BATCHES)
    def publish(self, batch: list[tuple[int, int, list[str]]]) -> None:
        """Publish messages; one that was published before is published again as it was."""
        self.publish_some(batch)

    def publish_some(self, batch: list[tuple[int, int, list[str]]]) -> None:
        """Publish messages."""
        for key, version, does in batch:
            name = f"k{self.age}-{key}"
            acts = self.acts.setdefault(f"{name}:{version}", does)
            body = {"key": name, "version": version, "to": STATES[version - 1], "does": acts}
            self.broker.publish(Message("orders", json.dumps(body).encode()))

    @rule(reason=st.sampled_from(sorted(REFUSED)))
    def publish_nonsense(self, reason: str) -> None:
        """Publish what can never be applied."""
        self.refused[reason] += 1
        self.broker.publish(Message("orders", REFUSED[reason]))

    # What the broker does

    @rule(count=st.integers(1, 6), places=st.lists(st.integers(0, 5), max_size=6))
    def deliver(self, count: int, places: list[int]) -> None:
        """Deliver a few messages, in order or not."""
        for turn in range(min(count, len(self.broker.waiting))):
            place = places[turn] if turn < len(places) else 0
            self._deliver(min(place, len(self.broker.waiting) - 1))

    def _deliver(self, place: int) -> None:
        identity = self._identity(self.broker.waiting[place])
        try:
            self.broker.deliver(place)
        except Killed:
            self._boot()
            return
        if identity:
            self.arrivals[identity].append(max(self.broker.held, default=0))

    @rule(seconds=st.sampled_from([0.1, 1, 2, 5, 40]))
    def time_passes(self, seconds: float) -> None:
        """Let delays end and sleeping keys wake."""
        self.clock.advance(timedelta(seconds=seconds))
        self.broker.wake()

    # What the process does

    @rule(worker=st.integers(0, WORKERS - 1), limit=st.integers(1, 20))
    def take(self, worker: int, limit: int) -> None:
        """Let a worker take what is ready."""
        self.process.take(worker, limit)

    @rule(worker=st.integers(0, WORKERS - 1))
    def work(self, worker: int) -> None:
        """Let a worker run and settle what it took, whatever has happened meanwhile."""
        self._work(worker)

    def _work(self, worker: int) -> None:
        try:
            self.process.work(worker)
        except Killed:
            self._boot()

    @rule(worker=st.integers(0, WORKERS - 1), limit=st.integers(1, 20))
    def take_and_work(self, worker: int, limit: int) -> None:
        """Do both."""
        self.process.take(worker, limit)
        self._work(worker)

    @rule(limit=st.integers(1, 20))
    def all_goes_its_way(self, limit: int) -> None:
        """Deliver everything that waits, and let every worker work."""
        self.all_work(limit)

    def all_work(self, limit: int) -> None:
        """Do so."""
        while self.broker.waiting:
            self._deliver(0)
        for worker in range(WORKERS):
            self.process.take(worker, limit)
        # The last to take is the first to work: a key that two of them own would lose its order.
        for worker in reversed(range(WORKERS)):
            self._work(worker)

    # What goes wrong

    @rule(trouble=TROUBLES, times=TIMES)
    def trouble_comes(self, trouble: tuple[str, str], times: int) -> None:
        """Prepare a trouble for the next time that it can strike, or let it strike at once."""
        self.strike(trouble, times)

    @rule(batch=BATCHES, troubles=st.lists(TROUBLES, max_size=3), times=TIMES, limit=st.integers(1, 20))
    def a_bad_moment(
        self, batch: list[tuple[int, int, list[str]]], troubles: list[tuple[str, str]], times: int, limit: int
    ) -> None:
        """Publish, deliver and work while troubles strike."""
        self.publish_some(batch)
        for trouble in troubles:
            self.strike(trouble, times)
        self.all_work(limit)

    def strike(self, trouble: tuple[str, str], times: int) -> None:
        """Prepare or do it."""
        kind, where = trouble
        getattr(self, f"_{kind}")(where, times)

    def struck(self, trouble: tuple[str, str]) -> bool:
        """Return whether this trouble has come."""
        kind, where = trouble
        if kind == "database":
            return self.faults.seen[where] > 0
        return self.fired[" ".join(trouble)] > 0 or trouble in self.process.line.struck

    def _crash(self, where: str, times: int) -> None:
        self.fired["crash "] += 1
        self._boot()

    def _lose(self, where: str, times: int) -> None:
        self.fired["lose "] += 1
        self.process.line.lose()

    def _crash_at(self, where: str, times: int) -> None:
        def kill() -> None:
            self.fired[f"crash_at {where}"] += 1
            raise Killed(where)

        self.process.ambushes[where] = kill

    def _lose_at(self, where: str, times: int) -> None:
        def lose() -> None:
            self.fired[f"lose_at {where}"] += 1
            self.process.line.lose()

        self.process.ambushes[where] = lose

    def _broker_away(self, where: str, times: int) -> None:
        self.process.line.refuse[where] = min(times, 5)

    def _half(self, where: str, times: int) -> None:
        self.process.line.half.add(where)

    def _database(self, where: str, times: int) -> None:
        setattr(self.faults, where, times if where == "conflicts" else min(times, 3))

    # What keeps the ledger small

    @rule()
    def purge(self) -> None:
        """Purge; nothing is old yet."""
        self._purge()

    def _purge(self) -> None:
        self.faults.reset()
        for task in purge_tasks(SCOPE.partition(".")[0], {SCOPE: KEEP}, self.clock):
            while task.run(self.engine):
                pass

    @rule()
    def grow_old(self) -> None:
        """Drain, let the time pass that records are kept, and purge; later messages are of other entities."""
        self.drain()
        self.judge_the_end()
        self.clock.advance(KEEP + timedelta(seconds=1))
        self._purge()
        self.forgotten |= set(self.acts)
        self.age += 1
        with self.engine.connect() as connection:
            assert not connection.execute(select(processed.TABLE)).all(), "old records were not purged"

    # The end

    def drain(self) -> None:
        """Stop all faults, and let everything come to its end."""
        self.faults.reset()
        for _ in range(400):
            self.process.ambushes.clear()
            self.process.line.refuse.clear()
            self.process.line.half.clear()
            while self.broker.waiting:
                self._deliver(0)
            for worker in range(WORKERS):
                self._work(worker)
                self.process.take(worker, 50)
                self._work(worker)
            if not self.broker.copies():
                return
            self.time_passes(1)
        raise AssertionError(f"stuck: {self.broker.copies()}")

    def teardown(self) -> None:
        """Everything comes to its end, and that is the right one."""
        if not hasattr(self, "process"):
            return
        self.drain()
        for check in (
            self.nothing_is_wrong,
            self.nothing_is_double,
            self.nothing_is_lost,
            self.no_trace_of_what_is_not_final,
            self.no_message_is_charged_for_others,
            self.nothing_is_stuck,
            self.order_is_kept,
        ):
            check()
        self.judge_the_end()
