"""The oracle of the model: what must hold at every moment, and in the end."""

import json
from collections import Counter, defaultdict
from datetime import timedelta
from typing import Any, ClassVar

from hypothesis.stateful import RuleBasedStateMachine, invariant
from sqlalchemy import Engine, select

from oncemq.ledger.records import history, processed, states
from oncemq.message.envelope import Message
from oncemq.testing.fake_clock import FakeClock
from support.effects import Effect
from support.model.broker import ModelBroker
from support.model.database import DatabaseFaults
from support.model.process import ATTEMPTS, GOOD, STATES, Process, Strategies, Told

REFUSED = {"no-key": b'{"version": 1}', "undecodable": b"{", "invalid-key": b'{"key": "k", "version": "x"}'}

CHAINS: dict[str, Strategies] = {
    "unique_key": [("unique_key", {})],
    "unique_key+state_machine": [
        ("unique_key", {}),
        ("state_machine", {"to": "body.to", "states": STATES}),
    ],
}


class Judge(RuleBasedStateMachine):
    """What is known from outside about a consumer's life, and what must be true of it."""

    engine: ClassVar[Engine]
    faults: ClassVar[DatabaseFaults]
    chain: ClassVar[str]
    fired: ClassVar[Counter[str]]

    def __init__(self) -> None:
        super().__init__()
        self.clock = FakeClock()
        self.clock.advance(timedelta(days=1))
        self.broker = ModelBroker(self.clock)
        self.told = Told()
        self.acts: dict[str, list[str]] = {}
        self.refused: Counter[str] = Counter()
        self.arrivals: dict[str, list[int]] = defaultdict(list)
        self.forgotten: set[str] = set()
        self.ordered = CHAINS[self.chain] != CHAINS["unique_key"]
        self.age = 0
        self.process: Process

    # What must hold at every moment

    @invariant()
    def nothing_is_wrong(self) -> None:
        """No one settled twice, no strategy failed."""
        assert not self.broker.wrong
        assert not self.told.troubles

    @invariant()
    def nothing_is_double(self) -> None:
        """No message took effect twice."""
        doubles = {identity: n for identity, n in self._effects().items() if n > 1}
        assert not doubles

    @invariant()
    def nothing_is_lost(self) -> None:
        """A message is still on its way, or it took effect, came too late, or is dead."""
        on_the_way = {self._identity(message) for message in self.broker.copies()}
        ended = (
            self._effects().keys()
            | self._stale()
            | {self._identity(letter.message) for letter in self.broker.dead}
        )
        lost = self.acts.keys() - on_the_way - ended - self.forgotten
        assert not lost, self._story(lost)

    @invariant()
    def no_trace_of_what_is_not_final(self) -> None:
        """There is a record of exactly what took effect, and each state stems from an effect."""
        recorded = set(self._read(select(processed.TABLE.c.identity)))
        final = self._effects().keys() - self.forgotten
        assert recorded - self.forgotten == final, self._story(recorded ^ final)
        if not self.ordered:
            return
        newest: dict[str, int] = {}
        for identity in self._effects().keys() - self.forgotten:
            key, _, version = identity.partition(":")
            newest[key] = max(newest.get(key, 0), int(version))
        with self.faults.suspended(), self.engine.connect() as connection:
            rows = connection.execute(select(states.TABLE.c.key, states.TABLE.c.state)).all()
        found = {row.key: row.state for row in rows if row.key.startswith(f"k{self.age}-")}
        assert found == {key: STATES[version - 1] for key, version in newest.items()}

    @invariant()
    def no_message_is_charged_for_others(self) -> None:
        """An attempt costs only who failed in it, and there are never more than allowed."""
        for identity, attempt in self.told.charged:
            assert attempt <= ATTEMPTS
            if identity in self.told.unlucky:
                continue
            acts = self.acts[identity]
            act = acts[attempt - 1] if attempt <= len(acts) else "add"
            assert not self._is_good(act), f"{identity} was charged for {act!r}"

    @invariant()
    def nothing_is_stuck(self) -> None:
        """What the broker thinks we hold is what we hold."""
        assert self.process.holds() == sorted(self.broker.held)

    @invariant()
    def order_is_kept(self) -> None:
        """A key's messages took effect by version where states are ordered, else as they arrived until the first failure."""
        rows = self._read(select(Effect.order_id).order_by(Effect.id))
        by_key: dict[str, list[str]] = defaultdict(list)
        for identity in rows:
            by_key[identity.partition(":")[0]].append(identity)
        for identities in by_key.values():
            if self.ordered:
                versions = [int(identity.partition(":")[2]) for identity in identities]
                assert versions == sorted(versions)
                continue
            failed = {identity for identity, _ in self.told.charged}
            plain = [
                identity
                for identity in identities
                if len(self.arrivals[identity]) == 1 and identity not in failed
            ]
            arrived = [self.arrivals[identity][0] for identity in plain]
            assert arrived == sorted(arrived), f"{plain} took effect in another order than they arrived"

    def judge_the_end(self) -> None:
        """Compare what became of each message with what its handler did."""
        effects, stale = self._effects().keys(), self._stale()
        dead = {self._identity(letter.message) for letter in self.broker.dead}
        failed = {identity for identity, _ in self.told.charged}
        failed |= {self._identity(message) for message in self.broker.tried}
        overtaken = {
            self._identity(letter.message) for letter in self.broker.dead if letter.reason == "overtaken"
        }
        assert overtaken <= failed, self._story(overtaken - failed)
        silent = (failed & self.acts.keys()) - effects - dead - self.forgotten
        assert not silent, self._story(silent)
        for identity in self.acts.keys() - self.forgotten - self.told.unlucky:
            if self._fate(identity) == "applied":
                assert identity in effects | stale | overtaken, self._story({identity})
                assert identity not in dead - overtaken, self._story({identity})
            else:
                assert identity not in effects, self._story({identity})
                assert identity in dead | stale, self._story({identity})
        reasons = Counter(letter.reason for letter in self.broker.dead)
        for reason, count in self.refused.items():
            # A dead letter whose original could not be acknowledged any more is written again.
            assert reasons[reason] >= count

    def _fate(self, identity: str) -> str:
        for act in [*self.acts[identity], "add"][:ATTEMPTS]:
            if self._is_good(act):
                return "applied"
            if act == "reject":
                return "dead"
        return "dead"

    def _is_good(self, act: str) -> bool:
        """Whether a handler that does this succeeds: where an error undoes only its statement, catching it is enough."""
        return act in GOOD or (act == "swallow" and self.engine.dialect.name != "postgresql")

    def _identity(self, message: Message) -> str:
        if message.body in REFUSED.values():
            return ""
        body: dict[str, Any] = json.loads(message.body)
        return f"{body['key']}:{body['version']}"

    def _effects(self) -> Counter[str]:
        return Counter(self._read(select(Effect.order_id)))

    def _stale(self) -> set[str]:
        return set(self._read(select(history.TABLE.c.identity).where(history.TABLE.c.outcome == "stale")))

    def _read(self, statement: Any) -> list[str]:
        with self.faults.suspended(), self.engine.connect() as connection:
            return list(connection.scalars(statement))

    def _story(self, identities: set[str]) -> str:
        return str({identity: self.acts.get(identity) for identity in identities})
