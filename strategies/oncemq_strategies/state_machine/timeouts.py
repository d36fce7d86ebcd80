"""Publishes a message for later when an entity enters a state, and cancels it when the entity leaves that state."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from oncemq.common.clock import Clock
from oncemq.common.durations import format_duration, parse_duration
from oncemq.common.error_text import describe
from oncemq.contracts.publisher import Publishers
from oncemq.contracts.strategy import Scope
from oncemq.contracts.unit import Item, Run
from oncemq.contracts.verdict import Culprits, retry
from oncemq.errors import Unpublishable
from oncemq.registry import did_you_mean
from oncemq_strategies.common.options import Options
from oncemq_strategies.state_machine.transitions import Rules

_FIELDS = ("after", "publish")
_EXAMPLE = "timeouts: {unpaid: {after: 30m, publish: order.expired}}"


@dataclass(frozen=True, slots=True)
class StateTimeout:
    """What is published when an entity has been in a state for too long.

    Args:
        after: how long.
        topic: where it is published.
    """

    after: timedelta
    topic: str


class StateTimeouts:
    """The time-outs of one consumer's states; without any it does nothing.

    Args:
        by_state: by the state.
        publishers: makes the publisher of a message.
        clock: the source of time.
    """

    def __init__(
        self, by_state: Mapping[str, StateTimeout], publishers: Publishers | None, clock: Clock
    ) -> None:
        self._by_state = by_state
        self._publishers = publishers
        self._clock = clock

    def __bool__(self) -> bool:
        return bool(self._by_state)

    @classmethod
    def of(cls, given: Options, rules: Rules, final: Collection[str], scope: Scope) -> "StateTimeouts":
        """Read the option `timeouts`."""
        if not given.has("timeouts"):
            return cls({}, None, scope.clock)
        found, publishers = dict[str, StateTimeout](), scope.publishers
        for state, declared in given.mapping("timeouts").items():
            if state not in rules.states:
                given.refuse(
                    f"{state!r} is none of the states{did_you_mean(state, list(rules.states))}",
                    "name states of this strategy",
                    name="timeouts",
                )
            if state in final:
                given.refuse(f"{state!r} is final: nothing ends it", "leave it out", name="timeouts")
            found[state] = _timeout(given, state, declared)
            if publishers is None:
                given.refuse("nothing can be published here", "leave `timeouts` out", name="timeouts")
            trial, body = publishers.trial(), _body("key", state, found[state], scope.clock)
            try:
                trial.publish(found[state].topic, body, key=body["key"], delay=found[state].after)
                trial.cancel(found[state].topic, key=body["key"])
            except Unpublishable as error:
                given.refuse(
                    f"the time-out of {state!r} cannot be published: {error}",
                    "declare the topic with `key: body.key`, the field in which it has the entity's key",
                    name="timeouts",
                )
        return cls(found, publishers, scope.clock)

    def moved(self, run: Run, item: Item, before: str | None, state: str) -> None:
        """Note that the message's entity has left a state for another one, or the same again."""
        if self._by_state:
            run.notes[self].append((item, before, state))

    def save(self, run: Run) -> None:
        """Cancel the time-outs of states that entities have left, and begin those of the new ones.

        Raises:
            Culprits: a middleware of the user's refused a message; the others run again without it.
        """
        for item, before, state in run.notes[self]:
            try:
                self._publish(run, item, before, state)
            except Exception as error:
                why = f"the time-out of state {state!r} cannot be published: {describe(error)}"
                raise Culprits({item: retry(why, error=error)}) from error

    def _publish(self, run: Run, item: Item, before: str | None, state: str) -> None:
        publishers = self._publishers
        if publishers is None:
            return
        left, entered = self._by_state.get(before or ""), self._by_state.get(state)
        publisher = publishers.of_item(run, item)
        if left is not None:
            publisher.cancel(left.topic, key=item.key)
        if entered is not None:
            body = _body(item.key, state, entered, self._clock)
            publisher.publish(entered.topic, body, key=item.key, delay=entered.after)


def _timeout(given: Options, state: str, declared: Any) -> StateTimeout:
    if not isinstance(declared, Mapping) or set(declared) != set(_FIELDS):
        given.refuse(f"the time-out of {state!r} must have `after` and `publish`", _EXAMPLE, name="timeouts")
    after, topic = declared["after"], declared["publish"]
    if not isinstance(topic, str) or not topic:
        given.refuse(f"{topic!r} is not the name of a topic", _EXAMPLE, name="timeouts")
    if not isinstance(after, timedelta):
        try:
            after = parse_duration(str(after))
        except ValueError as error:
            given.refuse(str(error), _EXAMPLE, name="timeouts")
    if after <= timedelta(0):
        given.refuse(f"{state!r} would end before it begins", _EXAMPLE, name="timeouts")
    return StateTimeout(after, topic)


def _body(key: str, state: str, timeout: StateTimeout, clock: Clock) -> dict[str, str]:
    return {
        "key": key,
        "state": state,
        "since": clock.now().isoformat(),
        "after": format_duration(timeout.after),
    }
