"""Dead letters of one consumer: in the broker, or in the ledger if no broker took them."""

import warnings
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from functools import partial
from uuid import uuid4

from sqlalchemy import Connection, Engine, inspect
from sqlalchemy.exc import SQLAlchemyError

from oncemq.common.error_text import describe
from oncemq.contracts.adapter import Adapter, DeadLetter, ParkedDeadLetter, Refused
from oncemq.contracts.broker_queries import DeadLetterCounter
from oncemq.engine.parking.instance_messages import replay
from oncemq.engine.plan import AppPlan, ConsumerPlan
from oncemq.errors import BrokerRefused, ClaimStoreUnavailable, InfrastructureError, MessageRefused
from oncemq.ledger.generations import records
from oncemq.ledger.messages import dead_letters as ledger
from oncemq.ledger.messages import held_letters, parking
from oncemq.ledger.records import final_failures
from oncemq.message import headers as names

EVERYTHING = 10_000_000
"""More dead letters than any consumer keeps; they are read one by one."""

Tell = Callable[[str], None]
"""Receives a warning for the operator."""

_MARK = f"{names.PREFIX}ledger-id"


class Letters:
    """All dead letters of a consumer.

    Args:
        adapter: the broker, prepared.
        consumer: the owner of the dead letters.
        engines: the app's databases; none without one.
        tell: called when some cannot be shown; a Python warning unless given.

    Attributes:
        consumer: the owner of the dead letters.
    """

    def __init__(
        self, adapter: Adapter, consumer: ConsumerPlan, engines: Sequence[Engine], tell: Tell | None = None
    ) -> None:
        self._tell = tell or _warned
        self._adapter = adapter
        self.consumer = consumer
        self._engines = engines
        self._engine = engines[0] if engines else None
        self._identities: dict[str, str] = {}
        self._unread: dict[str, ClaimStoreUnavailable] = {}

    def all(
        self, ids: Collection[str] = (), *, bodies: bool = True, after: str | None = None
    ) -> Iterator[DeadLetter]:
        """Yield those of the ledger, then those of the broker, each oldest first; close it before anything else.

        Args:
            ids: with some, only dead letters that may be among them; those of the ledger are looked up.
            bodies: without them, those of the ledger are read faster and may have an empty body; keys are known all the same.
            after: the id of a dead letter; of those in the ledger, only the ones behind it, none if it lies in the broker.

        Raises:
            BrokerRefused: the broker cannot list dead letters.
        """
        for letter in self._found(ids, bodies=bodies, after=after):
            if names.ON_DEAD in letter.message.headers:
                self._note(letter)
            yield letter

    def count(self) -> int | None:
        """Return how many there are, without reading them; None if the broker does not count them."""
        if not isinstance(self._adapter, DeadLetterCounter):
            return None
        there = self._adapter.dead_letter_count(self.consumer.subscription)
        if self._engine is None:
            return there
        try:
            with self._engine.connect() as connection:
                mine = connection, self.consumer.scope, self.consumer.only_topic
                return there + ledger.count(*mine) + held_letters.count(*mine)
        except SQLAlchemyError:
            return None  # reading them tells why

    def _found(self, ids: Collection[str], *, bodies: bool, after: str | None) -> Iterator[DeadLetter]:
        kept, others = _split(ids)
        if (kept or not ids) and (after is None or is_kept(after)):
            yield from self._kept(kept or None, bodies=bodies, after=after)
        if (kept and not others) or self.consumer.subscription.broadcast is not None:
            return
        if not self._adapter.capabilities.browse_dead_letters:
            raise BrokerRefused(f"broker {self.consumer.broker!r} cannot list dead letters")
        yield from self._adapter.dead_letters(self.consumer.subscription, EVERYTHING)

    def replay(self, ids: Sequence[str]) -> int:
        """Send dead letters to the group again; returns how many.

        Raises:
            BrokerError: the broker refuses one now; it stays, as do those after it.
            InfrastructureError: the database refuses one now, for example since its row is locked; as before.
        """
        kept, others = _split(ids)
        with _of_the_ledger():
            self._may_run(ids)
            count = sum(map(self._replay_kept, kept))
        return (
            count + self._adapter.replay_dead_letters(self.consumer.subscription, others) if others else count
        )

    def purge(self, ids: Sequence[str]) -> int:
        """Delete dead letters permanently; returns how many.

        Raises:
            BrokerError, InfrastructureError: as `replay`.
        """
        kept, others = _split(ids)
        with _of_the_ledger():
            count = self._remove(kept) if kept else 0
        return (
            count + self._adapter.purge_dead_letters(self.consumer.subscription, others) if others else count
        )

    def _note(self, letter: DeadLetter) -> None:
        try:
            self._identities[letter.id] = self.consumer.reader.read(letter.message)[0].identity
        except MessageRefused:
            pass
        except ClaimStoreUnavailable as error:
            self._unread[letter.id] = error

    def _may_run(self, ids: Sequence[str]) -> None:
        """Let messages run again for which `on_dead` has taken effect; those of `all` are known."""
        for each in ids:
            if each in self._unread:
                raise self._unread[each]
        chosen = [identity for each in ids if (identity := self._identities.get(each)) is not None]
        if chosen:
            for engine in self._engines:
                with engine.begin() as connection:
                    if self.consumer.generations is not None:
                        records.forget_failed(connection, self.consumer.scope, chosen)
                    final_failures.forget(connection, self.consumer.scope, chosen)

    def _kept(
        self, ids: Collection[str] | None = None, *, bodies: bool = True, after: str | None = None
    ) -> Iterator[DeadLetter]:
        if self._engine is None:
            return
        scope, topic = self.consumer.scope, self.consumer.only_topic
        held, others = (None, None) if ids is None else _split(ids, _holds_key)
        past_others = after is not None and _holds_key(after)
        try:
            present = inspect(self._engine)
            if not (present.has_table(ledger.TABLE.name) and present.has_table(parking.TABLE.name)):
                return
            read = ledger.letters if bodies else partial(ledger.heads, whole=_needs_body)
            with self._engine.connect() as connection:
                if others != [] and not past_others:
                    yield from read(connection, scope, others, after=after, topic=topic)
                if held != []:
                    last = after if past_others else None
                    yield from held_letters.letters(connection, scope, held, after=last, topic=topic)
        except SQLAlchemyError as error:
            self._tell(f"dead letters that lie in the ledger are not shown: {describe(error)}")

    def _replay_kept(self, wanted: str) -> int:
        if _holds_key(wanted):
            return self._decide_held(held_letters.revive, wanted)
        with closing(_iterated(self._kept([wanted]))) as kept:
            letter = next(kept, None)
        if letter is None:
            return 0
        if self._engine is not None and self.consumer.subscription.broadcast is not None:
            with self._engine.begin() as connection:
                replay(connection, self.consumer.scope, self.consumer.reader, letter)
                return ledger.remove(connection, self.consumer.scope, [wanted])
        # By way of the broker's dead letters: from there every adapter sends the original unchanged.
        mark = uuid4().hex
        ours = {name: text for name, text in letter.message.headers.items() if name.startswith(names.PREFIX)}
        subscription = self.consumer.subscription
        (answer,) = self._adapter.publish_dead_letters(
            subscription, [ParkedDeadLetter(letter.message, {**ours, _MARK: mark})]
        )
        if isinstance(answer, Refused):
            raise answer.error
        with closing(_iterated(self._adapter.dead_letters(subscription, EVERYTHING))) as found:
            number = next((each.id for each in found if each.message.headers.get(_MARK) == mark), None)
        count = self._adapter.replay_dead_letters(subscription, [number]) if number is not None else 0
        self._remove([wanted])
        return count

    def _decide_held(self, act: Callable[[Connection, str, str], bool], wanted: str) -> int:
        """Replay or purge a dead letter that holds its key: the same transaction lets the messages behind it go, or not."""
        if self._engine is None:
            return 0
        with self._engine.begin() as connection:
            return int(act(connection, self.consumer.scope, wanted))

    def _remove(self, ids: Sequence[str]) -> int:
        if self._engine is None:
            return 0
        held, others = _split(ids, _holds_key)
        count = sum(self._decide_held(held_letters.remove, each) for each in held)
        if not others:
            return count
        with self._engine.begin() as connection:
            return count + ledger.remove(connection, self.consumer.scope, others)


def letters_of(plan: AppPlan, adapter: Adapter, consumer: ConsumerPlan, tell: Tell | None = None) -> Letters:
    """Return the dead letters of a consumer; those that cannot be shown go to `tell`, or are a Python warning."""
    return Letters(adapter, consumer, plan.engines, tell)


def _warned(text: str) -> None:
    warnings.warn(text, RuntimeWarning, stacklevel=2)


@contextmanager
def _of_the_ledger() -> Iterator[None]:
    try:
        yield
    except SQLAlchemyError as error:
        raise InfrastructureError(
            f"dead letters in the ledger cannot be changed now, nothing is lost: {describe(error)}"
        ) from error


def is_kept(letter_id: str) -> bool:
    """Return whether the dead letter with this id lies in the ledger."""
    return letter_id.startswith(ledger.ID_PREFIX) or _holds_key(letter_id)


def _holds_key(letter_id: str) -> bool:
    return letter_id.startswith(held_letters.ID_PREFIX)


def _needs_body(headers: Mapping[str, str]) -> bool:
    """Return whether its key or, for `on_dead`, its identity can be read from its body alone."""
    return names.KEY not in headers or names.ON_DEAD in headers


def _split(ids: Collection[str], fits: Callable[[str], bool] = is_kept) -> tuple[list[str], list[str]]:
    return [each for each in ids if fits(each)], [each for each in ids if not fits(each)]


def _iterated(letters: Iterator[DeadLetter]) -> Generator[DeadLetter]:
    yield from letters
