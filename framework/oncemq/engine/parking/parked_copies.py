"""Which message that shall be parked waits already: one that says the same, as a broker makes by delivering again."""

from collections.abc import Collection

from sqlalchemy import Connection

from oncemq.ledger.messages import parking
from oncemq.message.envelope import Envelope, Message
from oncemq.message.headers import PREFIX


class Waiting:
    """What waits for some keys, and what is about to.

    One identity is not enough to call a message a copy: where the key is the identity, or a strategy tells a key's
    messages apart by something else, the second one would be acknowledged and lost. Whether two that are kept here
    are one and the same is for the strategies to decide, when their turn has come.

    Args:
        connection: the transaction.
        consumer: the ledger scope.
        keys: the only ones that are asked about.
    """

    def __init__(self, connection: Connection, consumer: str, keys: Collection[str]) -> None:
        self._connection = connection
        self._consumer = consumer
        self._identities = parking.waiting(connection, consumer, keys)
        self._added: dict[tuple[str, str], list[Message]] = {}

    def count(self, key: str) -> int:
        """Return how many messages of a key wait."""
        return len(self._identities.get(key, ()))

    def has(self, envelope: Envelope, message: Message) -> bool:
        """Return whether a copy of this message waits."""
        key, identity = envelope.key, envelope.identity
        if identity not in self._identities.get(key, ()):
            return False
        stored = parking.messages(self._connection, self._consumer, key, identity)
        return any(_same(message, other) for other in [*stored, *self._added.get((key, identity), ())])

    def add(self, envelope: Envelope, message: Message) -> None:
        """Note that this message waits from now on."""
        self._identities.setdefault(envelope.key, []).append(envelope.identity)
        self._added.setdefault((envelope.key, envelope.identity), []).append(message)


def _same(one: Message, other: Message) -> bool:
    return (one.body, one.message_id, one.keys, _own_headers(one)) == (
        other.body,
        other.message_id,
        other.keys,
        _own_headers(other),
    )


def _own_headers(message: Message) -> dict[str, str]:
    """Return what its producer wrote; ours change with every try."""
    return {name: text for name, text in message.headers.items() if not name.startswith(PREFIX)}
