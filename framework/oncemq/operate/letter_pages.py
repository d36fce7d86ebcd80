"""Pages of dead letters: each begins where the one before ended, and none looks at more than a number of them."""

from collections.abc import Generator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from itertools import dropwhile
from typing import Any

from oncemq.contracts.adapter import DeadLetter
from oncemq.engine.plan import AppPlan, ConsumerPlan
from oncemq.operate.brokers import by_broker, prepared
from oncemq.operate.dead_letters import Filter, row_of
from oncemq.operate.letters import Letters, Tell, is_kept, letters_of


@dataclass(frozen=True, slots=True)
class Place:
    """The dead letter with which a page ended.

    Args:
        consumer: its consumer.
        id: its id.
        number: of the broker's, how many of this consumer had been read with it.
    """

    consumer: str
    id: str
    number: int = 0


@dataclass(slots=True)
class LetterPage:
    """What one page shows.

    Args:
        rows: the selected dead letters.
        next: where the next page begins; None at the end.
        searched: how many were looked at, if the page ends because it may not look at more.
        moved: the dead letter after which it should begin is gone, so it begins with the consumer's first.
    """

    rows: list[dict[str, Any]] = field(default_factory=list)
    next: Place | None = None
    searched: int | None = None
    moved: bool = False


@dataclass(frozen=True, slots=True)
class PageLimits:
    """How much one page may hold and read.

    Args:
        rows: dead letters that it shows.
        searched: dead letters that it looks at; those of a broker before its beginning do not count.
    """

    rows: int
    searched: int


def letter_page(
    plan: AppPlan,
    consumers: Sequence[ConsumerPlan],
    chosen: Filter,
    limits: PageLimits,
    after: Place | None = None,
    tell: Tell | None = None,
) -> LetterPage:
    """Return a page of the selected dead letters, each consumer's oldest first.

    Args:
        plan: the app's.
        consumers: whose.
        chosen: which of them.
        limits: of the page.
        after: where the page before ended; None = the first page.
        tell: called when some cannot be shown.

    Raises:
        BrokerRefused: a broker cannot list dead letters.
    """
    page = LetterPage()
    searched, last = 0, None
    with closing(_letters(plan, consumers, after, page, tell)) as letters:
        for consumer, number, letter in letters:
            if searched == limits.searched:
                page.next, page.searched = last, searched
                break
            searched += 1
            if chosen.fits(consumer, letter):
                if len(page.rows) == limits.rows:
                    page.next = last
                    break
                page.rows.append(row_of(consumer, letter))
            last = Place(consumer.name, letter.id, number)
    return page


def _letters(
    plan: AppPlan, consumers: Sequence[ConsumerPlan], after: Place | None, page: LetterPage, tell: Tell | None
) -> Generator[tuple[ConsumerPlan, int, DeadLetter]]:
    """Yield dead letters with their consumers and numbers; those of a consumer before `after` are not asked for."""
    ordered = [each for mine in by_broker(consumers).values() for each in mine]
    if after is not None and any(each.name == after.consumer for each in ordered):
        ordered = list(dropwhile(lambda each: each.name != after.consumer, ordered))
    for broker, mine in by_broker(ordered).items():
        with prepared(plan, broker, mine) as adapter:
            for consumer in mine:
                found = letters_of(plan, adapter, consumer, tell)
                place = after if after is not None and after.consumer == consumer.name else None
                with closing(_of_consumer(found, place, page)) as letters:
                    for number, letter in letters:
                        yield consumer, number, letter


def _of_consumer(found: Letters, after: Place | None, page: LetterPage) -> Generator[tuple[int, DeadLetter]]:
    if after is None or is_kept(after.id):
        yield from _numbered(found, after.id if after is not None else None)
        return
    with closing(_numbered(found, after.id)) as letters:
        for number, letter in letters:
            if letter.id == after.id:
                yield from letters
                return
            if number >= after.number:  # dead letters leave, none comes between them
                break
    page.moved = True
    yield from _numbered(found, None)


def _numbered(found: Letters, after: str | None) -> Generator[tuple[int, DeadLetter]]:
    number = 0
    for letter in found.all(bodies=False, after=after):
        number += not is_kept(letter.id)
        yield number, letter
