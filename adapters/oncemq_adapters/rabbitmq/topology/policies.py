"""Finds policies of operators that delete, refuse or move messages of a group's queues; only the management API shows them."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any, NamedTuple

from oncemq.common.durations import format_duration
from oncemq.common.problems import Problem, Severity
from oncemq.contracts.checks import ConsumerFacts
from oncemq.errors import BrokerUnavailable
from oncemq_adapters.rabbitmq.connection import management
from oncemq_adapters.rabbitmq.connection.address import DECLARE, Address
from oncemq_adapters.rabbitmq.topology.delays import all_steps
from oncemq_adapters.rabbitmq.topology.names import Place

NOT_COMPARED = (
    "policies that limit the length, time to live or expiry of queues: RabbitMQ tells them through its management API only; "
    f"{management.HOW}"
)
TTL, EXPIRES, LENGTH, LENGTH_BYTES = KEYS = ("message-ttl", "expires", "max-length", "max-length-bytes")
OVERFLOW, DROPPING = "overflow", ("drop-head", "reject-publish-dlx")
_ADVICE = "have an administrator exclude the queue from it"


class Policy(NamedTuple):
    """A policy of the virtual host.

    Args:
        title: its name, and whether it is an operator's.
        pattern: of the names of queues, as a regular expression.
        applies_to: `all`, `queues` or the queues of one type, such as `quorum_queues`.
        priority: the highest one of those that match holds alone.
        definition: its settings.
    """

    title: str
    pattern: str
    applies_to: str
    priority: int
    definition: Mapping[str, Any]

    def matches(self, queue: str, queue_type: str | None) -> bool:
        """Return whether it is for this queue; None is a queue of an unknown type."""
        kinds = {"all", "queues", f"{queue_type}_queues"}
        if self.applies_to not in kinds and not (queue_type is None and self.applies_to.endswith("_queues")):
            return False
        return re.search(self.pattern, queue) is not None


class Limit(NamedTuple):
    """What really holds of one setting, and where it is from."""

    value: int
    source: str

    @property
    def time(self) -> str:
        """The value in milliseconds, in words."""
        return format_duration(timedelta(milliseconds=self.value))


class Policies(NamedTuple):
    """All policies of a virtual host.

    Args:
        sets: those of users, then those of operators; one of each holds for a queue, and the smaller value counts.
    """

    sets: Sequence[Sequence[Policy]]

    def of(self, queue: str, queue_type: str | None, arguments: Mapping[str, Any]) -> dict[str, Limit]:
        """Return what holds for a queue.

        Args:
            queue: its name; it need not exist yet.
            queue_type: quorum or classic; None if it is not known.
            arguments: those of its declaration whose value counts beside the policies'.
        """
        found: dict[str, Limit] = {}
        for source, settings in (("its declaration", arguments), *self._matching(queue, queue_type)):
            for key in KEYS:
                value = settings.get(key)
                if isinstance(value, int) and (key not in found or value < found[key].value):
                    found[key] = Limit(value, source)
        return found

    def overflow(self, queue: str, queue_type: str | None) -> str:
        """Return what a full queue does."""
        said = [settings.get(OVERFLOW) for _, settings in self._matching(queue, queue_type)]
        return next((str(each) for each in said if each), DROPPING[0])

    def _matching(self, queue: str, queue_type: str | None) -> Iterator[tuple[str, Mapping[str, Any]]]:
        for policies in self.sets:
            mine = [policy for policy in policies if policy.matches(queue, queue_type)]
            if mine:
                strongest = max(mine, key=lambda policy: policy.priority)
                yield strongest.title, strongest.definition


def examine_policies(place: Place, facts: ConsumerFacts, address: Address) -> Iterator[Problem]:
    """Yield what policies do to the messages, retries and dead letters of a group, also of queues that do not exist yet."""
    if not address.management:
        return
    try:
        policies = Policies(
            [_read(address, "policies", "policy"), _read(address, "operator-policies", "operator policy")]
        )
        found = [
            *_of_messages(place, policies, address),
            *_of_retries(place, policies, facts),
            *_of_dead_letters(place, policies, facts),
        ]
    except (BrokerUnavailable, KeyError, TypeError, re.error) as error:
        yield Problem(
            f"the management API at {address.management} does not tell the policies of queues ({error})",
            "give the account the tag management (rabbitmqctl set_user_tags), or correct the URL",
            "topic",
            Severity.WARNING,
        )
        return
    yield from found


def _read(address: Address, kind: str, title: str) -> list[Policy]:
    return [
        Policy(
            f"{title} {row['name']!r}",
            row["pattern"],
            row.get("apply-to", "all"),
            int(row.get("priority", 0)),
            row["definition"],
        )
        for row in management.ask(address, kind)
    ]


def _of_messages(place: Place, policies: Policies, address: Address) -> Iterator[Problem]:
    queue_type = None if place.is_existing else place.topic.queue_type
    for queue in place.queues():
        limits = policies.of(queue, queue_type, _arguments(place, queue, address))
        gone = (
            "RabbitMQ drops it or dead-letters it elsewhere" if place.is_existing else "it is a dead letter"
        )
        if ttl := limits.get(TTL):
            yield _warned(
                ttl, f"a message that waits longer than {ttl.time} in the queue {queue!r} expires: {gone}"
            )
        if expires := limits.get(EXPIRES):
            yield _warned(
                expires,
                f"RabbitMQ deletes the queue {queue!r} with its messages when no process has consumed from it for {expires.time}",
            )
        for limit in _lengths(limits):
            if policies.overflow(queue, queue_type) in DROPPING:
                yield _warned(
                    limit, f"the queue {queue!r} has room for {_room(limits)}: for each message more, {gone}"
                )


def _of_retries(place: Place, policies: Policies, facts: ConsumerFacts) -> Iterator[Problem]:
    """Yield each finding once: there may be a queue for each of ninety pauses, in each partition."""
    said: set[tuple[str, str]] = set()
    longest = facts.longest_pause / timedelta(milliseconds=1)
    for queue, step in _waiting(place):
        for key, limit in policies.of(queue, place.topic.queue_type, {}).items():
            if (key, limit.source) in said or (
                key == TTL and (limit.value >= step or limit.value >= longest)
            ):
                continue
            said.add((key, limit.source))
            yield _of_waiting(queue, key, limit)


def _waiting(place: Place) -> Iterator[tuple[str, int]]:
    """Yield the queues of retries and of delayed messages, which none need exist, with their pause in milliseconds."""
    topic = place.topic
    keys = [
        topic.partition_key(part.partition or 0) if topic.partitions else topic.routing_key
        for part in place.parts()
    ]
    for step in all_steps():
        yield from ((part.retry_queue(step), step) for part in place.parts())
        yield from ((f"oncemq.delay.{topic.exchange}.{key}.{step}", step) for key in keys)


def _of_waiting(queue: str, key: str, limit: Limit) -> Problem:
    if key == EXPIRES:
        text = (
            f"RabbitMQ deletes queues such as {queue!r}, from which nothing is consumed, {limit.time} after they were made, "
            "with the messages that wait in them: these are lost"
        )
        return Problem(f"{text} ({limit.source})", _ADVICE, "retry", Severity.ERROR)
    if key == TTL:
        return _warned(
            limit, f"what should wait in queues such as {queue!r} comes after {limit.time} already", "retry"
        )
    return _warned(
        limit,
        f"queues such as {queue!r} have room for {limit.value} {'messages' if key == LENGTH else 'bytes'}: what is more "
        "comes too early, or is refused",
        "retry",
    )


def _of_dead_letters(place: Place, policies: Policies, facts: ConsumerFacts) -> Iterator[Problem]:
    queue = place.dead_queue
    limits = policies.of(queue, "classic", {})
    if ttl := limits.get(TTL):
        yield _warned(ttl, f"RabbitMQ deletes dead letters in {queue!r} after {ttl.time}", "group")
    if expires := limits.get(EXPIRES):
        yield _warned(
            expires,
            f"RabbitMQ deletes {queue!r} with its dead letters when it was neither read nor declared for {expires.time}",
            "group",
        )
    for limit in _lengths(limits):
        kept = (
            "the ledger keeps further ones"
            if facts.dialect
            else "further messages stay unsettled until there is room"
        )
        yield _warned(limit, f"the dead-letter queue {queue!r} has room for {_room(limits)}: {kept}", "group")


def _arguments(place: Place, queue: str, address: Address) -> Mapping[str, Any]:
    """Return the arguments of a queue that was declared by others, as settings of a policy; none of those declared here."""
    if not place.is_existing and place.topic.declare == DECLARE:
        return {}
    try:
        given = management.ask(address, "queues", queue)["arguments"]
    except BrokerUnavailable:
        return {}  # a queue that does not exist is found by other checks
    return {key.removeprefix("x-"): value for key, value in given.items()}


def _lengths(limits: Mapping[str, Limit]) -> Iterable[Limit]:
    """Return the limit of the length, in messages or else in bytes; none if there is none."""
    return [limits[key] for key in (LENGTH, LENGTH_BYTES) if key in limits][:1]


def _room(limits: Mapping[str, Limit]) -> str:
    if LENGTH in limits:
        return f"{limits[LENGTH].value} messages"
    return f"{limits[LENGTH_BYTES].value} bytes"


def _warned(limit: Limit, text: str, where: str = "topic") -> Problem:
    return Problem(f"{text} ({limit.source})", _ADVICE, where, Severity.WARNING)
