"""Decides whose an error is that no message's own values explain: one message's, or everything's that uses the database.

The rule, in this order:

1. An error that the unit's own connection has not seen comes from something else that the handler uses: another
   database, a file, a service. It is the handler's, an ordinary failure, and counts as an attempt.
2. A deadlock, a serialization failure or a lock time-out is nobody's: it is tried again, and counts only if others are
   applied meanwhile (rule 7).
3. Anything else – a table, column, function or permission that is missing, a statement that was cancelled, a connection
   that was lost – may be one message's doing: a boolean where a number is wanted is `undefined function` to PostgreSQL.
   So the message runs alone while its neighbours go on without it. Then
   a. if a statement on the framework's own tables fails, in a connection of its own, it is the database's trouble;
   b. if another message has failed alone by the same error, and nothing was applied since, it is everything's;
   c. else it is this message's: it counts as an attempt, and the message comes again later, or ends as a dead letter.

In (a) and (b) the consumer pauses and says why, and no message is charged; what has failed is put behind what has not, so
that the next one to be tried is another one. (b) needs a second message because there is no other evidence: the handler's
table may be missing for all of them. A success in between shows that it is not.
A lost connection counts from the second time on, since servers are restarted.
"""

from collections.abc import Callable

from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from oncemq.contracts.unit import Item
from oncemq.engine.base.error_verdicts import describe, is_infrastructure
from oncemq.engine.consumer.contention import Contention
from oncemq.errors import InfrastructureError, RedisUnavailable
from oncemq.message.envelope import Delivery
from oncemq.retry.classify import Fault, classify, signature_of

SHARED = 2
"""Different messages that fail alone by the same error, without a success since, show that it is not theirs."""
_LOST_COUNTS = 2


class Suspicion(InfrastructureError):
    """The database failed in what one item's handler did: the item runs alone, which shows whose fault it is."""

    def __init__(self, item: Item, cause: BaseException) -> None:
        super().__init__(describe(cause))
        self.item = item


def is_units(error: BaseException, doomed: BaseException | None, sound: Callable[[], bool]) -> bool:
    """Return whether an error that a handler raised is trouble of the unit's database, and no failure of the handler's.

    Args:
        error: what it raised.
        doomed: what was seen on the unit's connection meanwhile.
        sound: whether the unit's transaction can go on.
    """
    if doomed is not None:
        return is_infrastructure(doomed)
    if not is_infrastructure(error):
        return False
    kind = type(error)
    if issubclass(kind, InfrastructureError):
        return not issubclass(kind, RedisUnavailable)
    if not sound():
        return True
    if issubclass(kind, DBAPIError | PoolTimeout):
        return False  # seen by the events of another engine
    # A driver's own cursor on our connection is seen by no event. psycopg says whether that ended the transaction; on SQLite
    # ours has the only lock that there is, so that a file that is locked is another one.
    return classify(error) is Fault.TRANSIENT and not kind.__module__.startswith(("psycopg", "sqlite3"))


def counts(delivery: Delivery, cause: BaseException, lane: Contention) -> tuple[bool, bool]:
    """Note that a delivery failed alone, while the framework's own tables answered.

    Returns:
        Whether that counts as an attempt, and whether others fail by it too, so that the consumer must pause.
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
