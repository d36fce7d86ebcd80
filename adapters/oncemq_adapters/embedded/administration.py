"""Administration of one group: its dead letters and its depth."""

from collections.abc import Iterator, Sequence
from datetime import datetime

from oncemq.contracts.adapter import DeadLetter, ParkedDeadLetter, Subscription
from oncemq.contracts.broker_queries import Backlog
from oncemq.errors import BrokerRefused
from oncemq_adapters.embedded import dead_letters as graves
from oncemq_adapters.embedded import leases as takes
from oncemq_adapters.embedded import topics
from oncemq_adapters.embedded.session import Link
from oncemq_adapters.embedded.stored_messages import microseconds, moment, pack, unpack

_PAGE = 100


class Administration:
    """Answers questions about a group of a topic, and acts on its dead letters."""

    def __init__(self, link: Link, subscription: Subscription, place: str) -> None:
        self._link = link
        self._topic = subscription.topic
        found = link.read(lambda connection: topics.find(connection, subscription.topic, subscription.group))
        if found is None:
            raise BrokerRefused(
                f"embedded broker {place}: no group {subscription.group!r} of topic {subscription.topic!r}; "
                "it is registered when its consumer starts"
            )
        self._group = found

    def letters(self, limit: int) -> Iterator[DeadLetter]:
        """Yield dead letters, oldest first, in pages, so that nothing stays locked while a caller reads."""
        after = 0
        while limit > 0 and (found := self._page(after, min(limit, _PAGE))):
            for grave in found:
                message = unpack(self._topic, grave.properties, grave.body, grave.published_at)
                yield DeadLetter(str(grave.id), message, moment(grave.dead_at))
            limit, after = limit - len(found), found[-1].id

    def publish_dead_letters(self, burials: Sequence[ParkedDeadLetter], now: datetime) -> None:
        """Add dead letters, the headers of each burial over those of its message."""
        found = [_grave(burial, microseconds(now)) for burial in burials]
        self._link.write(lambda connection: graves.add(connection, self._group, found), durable=True)

    def replay(self, ids: Sequence[str]) -> int:
        """Send dead letters to the group again; one transaction with their removal."""
        return self._link.write(
            lambda connection: graves.replay(connection, self._topic, self._group, ids), durable=True
        )

    def purge(self, ids: Sequence[str]) -> int:
        """Remove dead letters for ever."""
        return self._link.write(lambda connection: graves.purge(connection, self._group, ids))

    def depth(self) -> int:
        """Return how many messages wait, delayed ones included, those in hands not."""
        return self._link.read(lambda connection: takes.depth(connection, self._group))

    def dead_letter_count(self) -> int:
        """Return how many dead letters there are."""
        return self._link.read(lambda connection: graves.count(connection, self._group))

    def backlog(self) -> Backlog:
        """Return how many messages are ready, leased and delayed."""
        ready, leased, delayed, due = self._link.read(
            lambda connection: takes.by_state(connection, self._group)
        )
        return Backlog(ready, leased, delayed, None if due is None else moment(due))

    def _page(self, after: int, size: int) -> list[graves.Grave]:
        return self._link.read(lambda connection: graves.page(connection, self._group, after, size))


def _grave(burial: ParkedDeadLetter, now: int) -> graves.Grave:
    message = burial.message
    published = microseconds(message.published_at) if message.published_at is not None else now
    properties = pack({**message.headers, **burial.headers}, message.keys, message.message_id)
    return graves.Grave(0, properties, published, now, message.body)
