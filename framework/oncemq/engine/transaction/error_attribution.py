"""Decides whether a database error is caused by one message, or affects everything that uses the database.

The rules, in this order:

1. An error that the unit's own connection has not seen comes from another resource of the handler: another
   database, a file, a service. It is the handler's, an ordinary failure, and counts as an attempt.
2. A deadlock, a serialization failure or a lock time-out is not attributed: it is retried, and counts only if others are
   applied meanwhile (rule 7).
3. Anything else – a missing table, column, function or permission, a cancelled statement, a lost
   connection – may be caused by one message: a boolean instead of a number is `undefined function` to PostgreSQL.
   So the message runs alone while its neighbours continue without it. Then
   a. if a statement on the framework's own tables fails, in a connection of its own, the database is at fault;
   b. if another message has failed alone by the same error, and nothing was applied since, it is shared by all;
   c. else it is this message's: it counts as an attempt, and the message is retried later, or dead-lettered.

In (a) and (b) the consumer pauses and reports the reason, and no message is charged; failed messages are put behind the
others, so that the next attempt is for another one. (b) needs a second message because there is no other evidence: the
handler's table may be missing for all of them. A success in between shows that it is not.
A lost connection counts from the second time on, since servers are restarted.
"""

from collections.abc import Callable

from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from oncemq.contracts.unit import Item
from oncemq.engine.base.error_verdicts import describe, is_infrastructure
from oncemq.engine.consumer.contention import Contention
from oncemq.errors import ClaimStoreUnavailable, InfrastructureError, RedisUnavailable
from oncemq.message.envelope import Delivery
from oncemq.retry.classify import Fault, classify, signature_of

SHARED = 2
"""The number of different messages that must fail alone by the same error, without a success since, to show a shared cause."""
_LOST_COUNTS = 2


class Suspicion(InfrastructureError):
    """The database failed in one item's handler: the item runs alone, which shows the cause."""

    def __init__(self, item: Item, cause: BaseException) -> None:
        super().__init__(describe(cause))
        self.item = item


def is_units(
    error: BaseException, doomed: BaseException | None, sound: Callable[[], bool], *, raw: bool
) -> bool:
    """Return whether an error that a handler raised is a failure of the unit's database, and not of the handler.

    Args:
        error: the handler's exception.
        doomed: the error seen on the unit's connection meanwhile.
        sound: whether the unit's transaction can continue.
        raw: the handler was given the driver's own connection of the unit, on which nothing is seen.
    """
    if doomed is not None:
        return is_infrastructure(doomed)
    if not is_infrastructure(error):
        return False
    kind = type(error)
    if issubclass(kind, InfrastructureError):
        return not issubclass(kind, RedisUnavailable | ClaimStoreUnavailable)
    if not sound():
        return True
    if issubclass(kind, DBAPIError | PoolTimeout):
        return False  # seen by the events of another engine
    # A driver's own cursor on our connection triggers no event. psycopg shows whether it ended the transaction; on SQLite
    # our connection holds the only lock of its file, so a locked file is another one.
    return (
        raw and classify(error) is Fault.TRANSIENT and not kind.__module__.startswith(("psycopg", "sqlite3"))
    )


def counts(delivery: Delivery, cause: BaseException, lane: Contention) -> tuple[bool, bool]:
    """Record that a delivery failed alone, while the framework's own tables answered.

    Returns:
        Whether it counts as an attempt, and whether others fail the same way, so that the consumer must pause.
    """
    delivery.failures += 1
    if delivery.failures == 1:
        delivery.commits_at_failure, delivery.failed_since = lane.commits, lane.now()
    envelope = delivery.envelope
    shared = lane.failed_alone(
        signature_of(cause), envelope.identity if envelope is not None else repr(delivery)
    )
    own = shared < SHARED or (delivery.failures > 1 and lane.commits > delivery.commits_at_failure)
    needed = _LOST_COUNTS if classify(cause) is Fault.OFFLINE else 1
    return own and delivery.failures >= needed, not own
