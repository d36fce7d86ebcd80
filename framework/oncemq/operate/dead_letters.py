"""Dead letters of an app's consumers: list, describe, replay and purge, in brokers and ledgers."""

from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from itertools import islice
from typing import Any

from oncemq.contracts.adapter import DeadLetter
from oncemq.engine.plan import AppPlan, ConsumerPlan
from oncemq.errors import ClaimStoreUnavailable, MessageRefused
from oncemq.message import headers as names
from oncemq.operate.auditing import Operator, Trail, selection, tally
from oncemq.operate.brokers import by_broker, chosen_consumers, prepared
from oncemq.operate.letters import EVERYTHING, Letters, Tell, letters_of

BATCH = 100
"""Dead letters that an adapter may hold in memory at once."""


@dataclass(frozen=True, slots=True)
class Filter:
    """Selection of dead letters; an omitted field does not restrict.

    Args:
        ids: as `list` shows them.
        key: the business key.
        reason: the machine-readable reason.
        error: a text that the last error contains, upper and lower case alike.
        since: aware; not dead before.
        until: aware; dead before. A dead letter without a time fits neither.
    """

    ids: frozenset[str] = frozenset()
    key: str | None = None
    reason: str | None = None
    error: str | None = None
    since: datetime | None = None
    until: datetime | None = None

    @property
    def restricts(self) -> bool:
        """Whether any field is given."""
        others = (self.key, self.reason, self.error, self.since, self.until)
        return bool(self.ids) or any(other is not None for other in others)

    def shown(self) -> str:
        """Return it for the audit trail."""
        since, until = (at.isoformat() if at is not None else None for at in (self.since, self.until))
        return selection(
            id=self.ids, key=self.key, reason=self.reason, error=self.error, since=since, until=until
        )

    def fits(self, consumer: ConsumerPlan, letter: DeadLetter) -> bool:
        """Return whether this dead letter of a consumer is selected."""
        return (
            (not self.ids or letter.id in self.ids)
            and (self.key is None or self.key == key_of(consumer, letter))
            and self.reason in (None, letter.message.headers.get(names.REASON))
            and (self.error is None or self.error.lower() in error_of(consumer, letter).lower())
            and (self.since is None or (letter.dead_at is not None and letter.dead_at >= self.since))
            and (self.until is None or (letter.dead_at is not None and letter.dead_at < self.until))
        )


def key_of(consumer: ConsumerPlan, letter: DeadLetter) -> str | None:
    """Return a dead letter's business key; of one that another client of the group made, by the topic's expression."""
    key = letter.message.headers.get(names.KEY)
    if key is None:
        with suppress(MessageRefused, ClaimStoreUnavailable):
            key = consumer.reader.read(letter.message)[0].key
    return key


def row_of(consumer: ConsumerPlan, letter: DeadLetter) -> dict[str, Any]:
    """Return the row of a list for a dead letter."""
    found = letter.message.headers
    on_dead = {"on_dead": consumer.redact(found[names.ON_DEAD])} if names.ON_DEAD in found else {}
    return {
        "consumer": consumer.name,
        "id": letter.id,
        "key": key_of(consumer, letter),
        "reason": found.get(names.REASON),
        "attempts": names.attempt_of(found) if names.ATTEMPT in found else letter.message.attempt,
        "dead_at": letter.dead_at,
        "error": error_of(consumer, letter) or None,
        "topic": letter.message.topic,
        "message_id": letter.message.message_id,
        "published_at": letter.message.published_at,
        "first_failed_at": names.time_of(found, names.FIRST_FAILED_AT),
        "last_failed_at": names.time_of(found, names.LAST_FAILED_AT),
        **names.trace_of(found),
        **on_dead,
    }


def error_of(consumer: ConsumerPlan, letter: DeadLetter) -> str:
    """Return class and text of a dead letter's last error, secrets masked; empty where there is none."""
    return consumer.redact(_error(letter.message.headers))


def _error(headers: Mapping[str, str]) -> str:
    kind, text = headers.get(names.ERROR_CLASS), headers.get(names.ERROR_TEXT)
    if kind and text and not text.startswith(kind):
        text = f"{kind}: {text}"
    return text or kind or ""


@contextmanager
def browsing(
    found: Letters, chosen: Filter, limit: int, *, bodies: bool = True
) -> Iterator[Iterator[DeadLetter]]:
    """Yield the selected dead letters, oldest first; each is read on demand.

    Afterwards all of them are still in place.

    Args:
        found: all of a consumer.
        chosen: which of them.
        limit: at most so many.
        bodies: False where they may be empty, which is faster.

    Raises:
        BrokerRefused: the broker cannot list dead letters.
    """
    with closing(_closable(found.all(chosen.ids, bodies=bodies))) as letters:
        yield islice((letter for letter in letters if chosen.fits(found.consumer, letter)), limit)


def _closable(letters: Iterator[DeadLetter]) -> Generator[DeadLetter]:
    yield from letters


def found_letters(
    plan: AppPlan,
    consumers: Sequence[ConsumerPlan],
    chosen: Filter,
    limit: int,
    tell: Tell | None = None,
    *,
    bodies: bool = True,
) -> Generator[tuple[ConsumerPlan, DeadLetter]]:
    """Yield the selected dead letters with their consumers, oldest first; one is in memory at a time.

    Args:
        plan: the app's.
        consumers: whose.
        chosen: which of them.
        limit: at most so many of each consumer.
        tell: called when some cannot be shown.
        bodies: False where they may be empty, which is faster.

    Raises:
        BrokerRefused: the broker cannot list dead letters.
    """
    for broker, mine in by_broker(consumers).items():
        with prepared(plan, broker, mine) as adapter:
            for consumer in mine:
                found = letters_of(plan, adapter, consumer, tell)
                with browsing(found, chosen, limit, bodies=bodies) as letters:
                    for letter in letters:
                        yield consumer, letter


class Act(StrEnum):
    """What is done with dead letters."""

    REPLAY = "replay"
    PURGE = "purge"


def decided(found: Letters, act: Act, chosen: Filter, limit: int, trail: Trail) -> Iterator[int]:
    """Replay or purge in batches that an adapter may hold in memory; yields the count of each batch.

    Before each batch the audit trail has what is requested, and what came of it afterwards: a process that is killed
    between them leaves `requested`.

    Raises:
        BrokerError: a broker refuses a dead letter now; it stays, as do those after it.
    """
    with browsing(found, chosen, limit, bodies=False) as letters:
        those = [(letter.id, key_of(found.consumer, letter)) for letter in letters]
    target = chosen.shown()
    work = found.replay if act is Act.REPLAY else found.purge
    for start in range(0, len(those), BATCH):
        some = those[start : start + BATCH]
        with trail.step(found.consumer.scope, tally(key for _, key in some), target) as step:
            step.count = count = work([number for number, _ in some])
        yield count


@dataclass(frozen=True, slots=True)
class AppDeadLetter:
    """A dead letter of a consumer.

    Args:
        consumer: the consumer's name.
        id: the argument of `replay` and `purge`.
        key: the business key; None where the message had none.
        reason: the machine-readable reason, such as `rejected` or `no-key`.
        error: class and text of the last error; secrets are masked.
        traceback: of the last error, without values of rows; secrets are masked; None where none was kept.
        on_dead: `done` where the consumer's `on_dead` function has taken effect, else why it failed; None without one.
        attempts: how often the message was tried.
        dead_at: when it was dead-lettered, aware; None where the broker does not say.
        topic: the original topic.
        headers: the application's own.
        body: the original bytes.
    """

    consumer: str
    id: str
    key: str | None
    reason: str | None
    error: str | None
    attempts: int
    dead_at: datetime | None
    topic: str
    headers: Mapping[str, str]
    body: bytes = field(repr=False)
    traceback: str | None = field(default=None, repr=False)
    on_dead: str | None = None

    @classmethod
    def of(cls, consumer: ConsumerPlan, letter: DeadLetter) -> "AppDeadLetter":
        """Return a dead letter as stored in the broker."""
        row, message = row_of(consumer, letter), letter.message
        own = {name: text for name, text in message.headers.items() if not name.startswith(names.PREFIX)}
        shown = {
            name: row[name] for name in ("consumer", "id", "key", "reason", "error", "attempts", "dead_at")
        }
        trace = consumer.redact(message.headers.get(names.TRACEBACK, "")) or None
        return cls(
            **shown,
            topic=message.topic,
            headers=own,
            body=message.body,
            traceback=trace,
            on_dead=row.get("on_dead"),
        )


class DeadLetters:
    """The dead letters of an app: the operations of `oncemq dead-letters list`, `replay` and `purge`.

    Every call connects to the brokers and disconnects. Without a selection all dead letters of the consumer are meant,
    which `replay` and `purge` accept only with `everything=True`.

    Args:
        plan: builds the app's plan; each call uses a new one.
    """

    def __init__(self, plan: Callable[[], AppPlan]) -> None:
        self._plan = plan

    def list(
        self,
        consumer: str | None = None,
        *,
        ids: Collection[str] = (),
        key: str | None = None,
        reason: str | None = None,
        limit: int = 100,
    ) -> Sequence[AppDeadLetter]:
        """Return dead letters of a consumer, or of all, each consumer's oldest first.

        Args:
            consumer: its name; None = all consumers.
            ids: only these.
            key: only those of this business key.
            reason: only those with this reason.
            limit: at most so many for each consumer.

        Raises:
            ConfigError: the app is invalid, or has no such consumer.
            BrokerError: a broker cannot be reached, or cannot list dead letters.
        """
        with _lent(self._plan()) as plan:
            chosen = Filter(frozenset(ids), key, reason)
            found = found_letters(plan, chosen_consumers(plan, consumer), chosen, limit)
            with closing(found):
                return [AppDeadLetter.of(owner, letter) for owner, letter in found]

    def replay(
        self,
        consumer: str | None = None,
        *,
        ids: Collection[str] = (),
        key: str | None = None,
        reason: str | None = None,
        everything: bool = False,
        by: str | None = None,
        why: str = "",
    ) -> int:
        """Send dead letters to their consumer again, with fresh attempts; returns how many.

        Args:
            consumer: its name; None = all consumers.
            ids: only these.
            key: only those of this business key.
            reason: only those with this reason.
            everything: all of them, without a selection.
            by: who does it, for the audit trail; None = the login name and host of this process.
            why: the reason, for the audit trail.

        Raises:
            ValueError: neither a selection nor `everything` is given.
            BrokerError: a broker refuses one now; it stays, as do those after it.
        """
        return self._act(
            Act.REPLAY, consumer, _chosen(ids, key, reason, everything=everything), _operator(by, why)
        )

    def purge(
        self,
        consumer: str | None = None,
        *,
        ids: Collection[str] = (),
        key: str | None = None,
        reason: str | None = None,
        everything: bool = False,
        by: str | None = None,
        why: str = "",
    ) -> int:
        """Delete dead letters permanently; returns how many.

        Args:
            consumer: its name; None = all consumers.
            ids: only these.
            key: only those of this business key.
            reason: only those with this reason.
            everything: all of them, without a selection.
            by: who does it, for the audit trail; None = the login name and host of this process.
            why: the reason, for the audit trail.

        Raises:
            ValueError: neither a selection nor `everything` is given.
            BrokerError: a broker cannot be reached.
            InfrastructureError: the database cannot be changed now.
        """
        return self._act(
            Act.PURGE, consumer, _chosen(ids, key, reason, everything=everything), _operator(by, why)
        )

    def _act(self, act: Act, consumer: str | None, chosen: Filter, operator: Operator) -> int:
        count = 0
        with _lent(self._plan()) as plan:
            trail = Trail(plan, operator, f"dead-letters {act}")
            for broker, mine in by_broker(chosen_consumers(plan, consumer)).items():
                with prepared(plan, broker, mine) as adapter:
                    for owner in mine:
                        found = letters_of(plan, adapter, owner)
                        count += sum(decided(found, act, chosen, EVERYTHING, trail))
        return count


def _chosen(ids: Collection[str], key: str | None, reason: str | None, *, everything: bool) -> Filter:
    chosen = Filter(frozenset(ids), key, reason)
    if everything == chosen.restricts:
        raise ValueError("say which: ids=, key= or reason=; or everything=True, without these")
    return chosen


def _operator(by: str | None, why: str) -> Operator:
    return Operator(by, why) if by else Operator(why=why)


@contextmanager
def _lent(plan: AppPlan) -> Iterator[AppPlan]:
    try:
        yield plan
    finally:
        for engine in plan.engines:
            engine.dispose()
