"""Follows the pauses in the ledger: a paused consumer takes nothing, and returns to the broker what it has not started."""

from collections.abc import Mapping
from datetime import timedelta

from oncemq.engine.consumer_runtime import ConsumerRuntime
from oncemq.engine.plan import AppPlan
from oncemq.ledger.coordination import pauses
from oncemq.ledger.coordination.pauses import OPERATOR, Pause
from oncemq.ledger.coordination.signals import PAUSES, LedgerSignals
from oncemq.ledger.database.connect import glance
from oncemq.observe.observers import Observers
from oncemq.observe.state import PauseReason

READ_EVERY = 2.0
"""Seconds between two looks into the ledger: one statement for all consumers of a process, if there is a pause at all."""


class OrderedPauses:
    """Pauses and resumes the consumers of this process as the ledger says.

    Args:
        plan: the app.
        crews: its consumers.
        observers: receive what is noticed.
        signals: tells whether there are pauses.
    """

    def __init__(
        self,
        plan: AppPlan,
        crews: Mapping[str, ConsumerRuntime],
        observers: Observers,
        signals: LedgerSignals,
    ) -> None:
        self._plan = plan
        self._signals = signals
        self._crews = crews
        self._observers = observers
        self._read_at = 0.0
        self._silenced: set[str] = set()
        self._since: dict[str, float] = {}

    def begin(self) -> None:
        """Read the ledger before anything is consumed."""
        self._read()

    def look(self, *, at_once: bool = False) -> None:
        """Read the ledger when it is time, or at once, and return what paused consumers still hold; must not raise."""
        if self._plan.engine is None:
            return
        now = self._plan.clock.monotonic()
        if at_once or now - self._read_at >= READ_EVERY:
            try:
                # One that is paused here may have been resumed, or paused and resumed between two answers.
                if at_once or self._paused() or self._signals.any(PAUSES):
                    self._read()
                self._read_at = now
            except Exception as error:
                self._observers.failed("reading which consumers are paused", error)
        for name, crew in self._crews.items():
            if crew.consumer.pauses and not crew.consumer.gate.stopped:
                self._hand_back(name, crew)

    def _paused(self) -> bool:
        return any(crew.consumer.pauses for crew in self._crews.values())

    def _read(self) -> None:
        engine = self._plan.engine
        if engine is None:
            return
        self._read_at = self._plan.clock.monotonic()
        scopes = self._plan.scopes
        with glance(engine) as connection:
            found = pauses.of(connection, set(scopes.values()))
        for name, scope in scopes.items():
            self._follow(name, self._crews[name], found.get(scope, ()))

    def _follow(self, name: str, crew: ConsumerRuntime, now_in_force: tuple[Pause, ...]) -> None:
        if crew.consumer.gate.stopped:
            return  # a drain returns everything by itself
        before = crew.consumer.pauses
        crew.consumer.pauses = now_in_force
        if now_in_force:
            crew.consumer.gate.hold()
        if now_in_force and not before:
            self._since[name] = self._plan.clock.monotonic()
            self._tell(name, now_in_force[0])
        elif before and not now_in_force:
            crew.consumer.gate.let_go()
            self._listen(name)
            lasted = self._plan.clock.monotonic() - self._since.pop(name, self._read_at)
            self._observers.consumer_resumed(name, after=timedelta(seconds=lasted))

    def _tell(self, name: str, pause: Pause) -> None:
        operator = pause.kind == OPERATOR
        reason = PauseReason.ASKED if operator else PauseReason.BREAKER
        left = None if pause.until is None else max(timedelta(0), pause.until - self._plan.clock.now())
        self._observers.consumer_paused(name, reason, retry_in=left)
        if operator:
            self._observers.warned(
                f"consumer {name!r} is paused in all processes {pause}; `oncemq resume {name}` ends that"
            )

    def _hand_back(self, name: str, crew: ConsumerRuntime) -> None:
        """Stop receiving, and return what has not begun; what runs is finished and settled as ever."""
        try:
            if name not in self._silenced and self._subscribed(name):
                crew.consumer.adapter.pause(name)
                self._silenced.add(name)
            crew.hand_back(crew.consumer.scheduler.withdraw())
        except Exception as error:
            self._observers.failed(f"returning what waits for {name}", error)

    def _subscribed(self, name: str) -> bool:
        """Return whether the broker gives us messages already; before that, there is nothing to pause."""
        rows = self._crews[name].consumer.adapter.health()
        return any(row.consumer == name and row.subscribed for row in rows)

    def _listen(self, name: str) -> None:
        if name in self._silenced:
            self._silenced.discard(name)
            self._crews[name].consumer.adapter.resume(name)
