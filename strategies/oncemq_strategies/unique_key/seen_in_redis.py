"""Records of another deduplicator in Redis, which count while a group changes over; they are only read."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from oncemq.contracts.unit import Item, Run, Unit
from oncemq.contracts.verdict import Outcome, Verdict, retry
from oncemq.errors import MessageRefused, MissingKey, RedisRefused, RedisUnavailable
from oncemq.message.envelope import Delivery
from oncemq.redis import RedisClient
from oncemq.redis.call import Call
from oncemq.redis.faults import Failure
from oncemq_strategies.common.name_template import NameTemplate
from oncemq_strategies.common.redis_permissions import missing_for, sample

_WRONG_TYPE = "WRONGTYPE"
_MOST_BITS = 4096
"""Of an integer; Python would spell a longer one slowly or refuse to."""


class SeenInRedis:
    """Asks keys that another deduplicator writes whether a message was applied there.

    Args:
        client: of the app's Redis.
        names: templates of a message's keys; one that needs a value that the message does not have is left out.
        values: of a key whose message was applied.
    """

    def __init__(self, client: RedisClient, names: Sequence[NameTemplate], values: Collection[str]) -> None:
        self._client = client
        self._names = names
        self._values = frozenset(value.encode() for value in values)

    def look(self, unit: Unit) -> None:
        """Read the keys of a unit's messages in one round trip, before its transaction.

        Raises:
            RedisUnavailable: an answer is missing, so that nothing is known of its message.
            RedisRefused: the Redis user may not read such keys.
        """
        keys: dict[str, list[str]] = {}
        for delivery in unit.deliveries:
            if delivery.envelope is not None and delivery not in unit.verdicts:
                for name in self._of(unit, delivery):
                    keys.setdefault(name, []).append(delivery.envelope.identity)
        found: dict[str, Verdict] = {}
        for name, verdict in self._asked(list(keys)):
            for identity in keys[name]:
                # What was applied under one of its keys was applied, whatever another one holds.
                if verdict.outcome is Outcome.DUPLICATE or identity not in found:
                    found[identity] = verdict
        unit.notes[self] = found

    def seen(self, run: Run, items: Iterable[Item]) -> Mapping[str, Verdict]:
        """Return a verdict for each of these identities that was applied there, or that cannot be looked up."""
        found: Mapping[str, Verdict] = run.unit.notes[self]
        if not found:
            return found
        asked = {item.envelope.identity for item in items}
        return {identity: verdict for identity, verdict in found.items() if identity in asked}

    def missing(self) -> Iterator[RedisRefused]:
        """Yield missing permissions of the Redis user, tried with keys that no message has."""
        for name in self._names:
            key = name.of_key(sample())
            yield from missing_for(
                self._client,
                "reading the keys of also_seen_in",
                f"~{name.pattern()} +get",
                lambda key=key: self._client.command("GET", key, key=key),  # type: ignore[misc]
            )

    def _of(self, unit: Unit, delivery: Delivery) -> Iterator[str]:
        for name in self._names:
            try:
                yield name.of(unit, delivery)
            except MessageRefused:
                continue

    def _asked(self, names: Sequence[str]) -> Iterator[tuple[str, Verdict]]:
        # GET for each: MGET would answer for a key of another type as for none.
        answers = self._client.together([Call(name, ("GET", name)) for name in names]) if names else []
        for answer in answers:
            if isinstance(answer, RedisUnavailable):
                raise answer
        for name, answer in zip(names, answers, strict=True):
            if isinstance(answer, Failure):
                self._insist(answer)
                yield name, retry(f"whether Redis has it as applied cannot be known: {answer}", error=answer)
            elif answer is not None and _bytes(answer) in self._values:
                yield name, Verdict(Outcome.DUPLICATE, f"seen in Redis as {name}", tier="redis")

    def _insist(self, refusal: Failure) -> None:
        """Raise a refusal that concerns every message; one key of another type concerns its message alone."""
        if _WRONG_TYPE in str(refusal):
            return
        probes = [name.of_key(sample()) for name in self._names]
        for answer in self._client.together([Call(probe, ("GET", probe)) for probe in probes]):
            if isinstance(answer, Failure):
                raise answer


def spelled(value: Any, field: str) -> str:
    """Return the text that names a message in a key.

    Raises:
        MissingKey: the value is none, or of a type that other programs spell in ways of their own.
    """
    if type(value) is int and value.bit_length() <= _MOST_BITS:
        return str(value)
    if type(value) is str and value and _is_text(value):
        return value
    raise MissingKey(f"{field} has no value that could name it in Redis")


def _is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _bytes(answer: Any) -> bytes:
    return answer if isinstance(answer, bytes) else str(answer).encode()
