"""All errors that OnceMQ raises, as one tree with one root.

OnceMQError
├── ConfigError              the app as declared cannot work; carries every problem found
├── UnknownName              a strategy, adapter or option that does not exist, with a suggestion
├── MissingExtra             an optional dependency is not installed; says the install line
├── MessageRefused           this message can never be applied; ends as a dead letter
│   ├── Undecodable          its bytes do not match the topic's format
│   ├── InvalidPayload       it decodes, but does not match the handler's type
│   ├── UnacceptedSchema     its version is not accepted, or cannot be brought to one that is
│   ├── UnknownRoute         the consumer has no route for it
│   ├── MissingKey           the key expression found nothing
│   ├── InvalidKey           key, version or identity is not usable (empty, NUL, too long …)
│   ├── ClaimInvalid         it refers to a body that is never read
│   ├── ClaimGone            the body that it refers to is not in the store any more
│   └── ClaimAltered         the body in the store is not the one that was sent
├── Signal                   raised by handlers to decide about this message
│   ├── Reject               dead-letter it now
│   ├── Retry                deliver it again later
│   └── BadItems             these messages of a Batch failed, each by its own error; the others are fine
├── HandlerFault             a handler did something that is reserved for the framework
│   ├── SessionOwned         it ended the transaction or the session it was given
│   ├── TimeLimitExceeded    it took longer than its soft time limit
│   └── Unpublishable        it published a message that no consumer of that topic could read
├── RequestRefused           a protected request or call was not executed this time
│   ├── RequestKeyInvalid    it has no key, or one that cannot be used
│   ├── RequestConflict      its key was used before with different content
│   ├── RequestInProgress    the same request is being executed now; retry later
│   ├── OutcomeUnknown       an earlier attempt ended without an answer; it may have been executed
│   └── AnswerNotKept        its answer cannot be kept, or was not
├── RequestError             `publisher.request` has no result
│   ├── RequestTimeout       no answer came in time; the request may still take effect
│   └── RequestFailed        the request ended as a dead letter, or its answer cannot be read; says why
├── BrokerError
│   ├── BrokerUnavailable    cannot be reached now; retrying may help
│   ├── BrokerRefused        it refused; retrying will not help
│   │   └── Unroutable       there is no queue or topic for the message
│   └── PartlyPublished      it did not confirm all messages; says which
├── SettleError
│   ├── AlreadySettled       a delivery was settled twice
│   └── DeliveryVoid         the connection or lease of the delivery is gone; the broker redelivers it
├── IdsUnavailable           no id can be made that is certain to be unique
│   ├── ClockSetBack         the machine's clock went back by more than can be waited out
│   └── WorkerNumberLost     this process has no exclusive worker number now
├── UniqueViolation          oncemq.retry.unique: a row with these unique values exists already
├── InfrastructureError      the database is away or busy; no message is at fault
│   ├── RedisUnavailable     the same for Redis; says whether the command may have been applied
│   └── ClaimStoreUnavailable   the same for the store of large bodies
├── RedisRefused             Redis refused the command; retrying will not help
├── LedgerError              the framework's own tables are missing or of another version
└── StrategyBug              a strategy failed in a hook that must not fail; the consumer pauses
"""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Protocol

from oncemq.common.durations import delay_of


class OnceMQError(Exception):
    """The root of every error of this framework."""


class Located(Protocol):
    """Anything that can say what is wrong in one line, e.g. a `Problem`."""

    def __str__(self) -> str: ...


class ConfigError(OnceMQError):
    """The declared app cannot work; `problems` holds one line for each reason; a single reason may be plain text."""

    def __init__(self, problems: Sequence[Located | str] | str) -> None:
        self.problems: tuple[Located | str, ...] = (
            (problems,) if isinstance(problems, str) else tuple(problems)
        )
        super().__init__("\n".join(str(problem) for problem in self.problems))


class UnknownName(OnceMQError):
    """No implementation is registered under this name."""


class MissingExtra(OnceMQError):
    """An optional dependency is not installed."""


class MessageRefused(OnceMQError):
    """This message can never be applied; `reason` becomes the dead letter's reason.

    Attributes:
        key: the message's business key, where it was found all the same; else empty.
    """

    reason = "refused"
    key = ""


class Undecodable(MessageRefused):
    """The body does not match the topic's format."""

    reason = "undecodable"


class InvalidPayload(MessageRefused):
    """The body decodes, but does not match the handler's type."""

    reason = "invalid"


class UnacceptedSchema(MessageRefused):
    """The consumer does not accept the version of this body, or it cannot be brought to the one that the handler takes."""

    reason = "schema"


class UnknownRoute(MessageRefused):
    """The consumer has no route for this message."""

    reason = "no-route"


class MissingKey(MessageRefused):
    """The key expression found nothing in the message; a key is never invented."""

    reason = "no-key"


class InvalidKey(MessageRefused):
    """The key, version or identity is not usable."""

    reason = "invalid-key"


class ClaimInvalid(MessageRefused):
    """The message refers to a body that is never read: a place outside of the store, or one that is too large."""

    reason = "claim-invalid"


class ClaimGone(MessageRefused):
    """The body that the message refers to is not in the store any more."""

    reason = "claim-gone"


class ClaimAltered(MessageRefused):
    """The body in the store is not the one that was sent."""

    reason = "claim-altered"


class Signal(OnceMQError):
    """Raised by a handler to decide about its message; ordinary control flow."""


class Reject(Signal):
    """Dead-letter this message now: `raise Reject("why")`."""


class Retry(Signal):
    """Redeliver this message: after `after`, or when the retry policy says so.

    Args:
        why: a few words for people.
        after: seconds (`30`, `1.5`), text (`"5m"`) or a timedelta; None = as the retry policy says.

    Raises:
        TypeError, ValueError: `after` is none of these, negative, not finite or longer than ten years.
    """

    def __init__(self, why: str = "", *, after: timedelta | float | str | None = None) -> None:
        super().__init__(why)
        self.after: timedelta | None = None if after is None else delay_of(after)


class BadItems(Signal):
    """Name the messages of a `Batch` that failed: `raise BadItems({2: ValueError("no such order"), 5: Reject("spam")})`.

    The batch is rolled back. Each message named gets the outcome of its own error, as if its handler call had raised it; the
    others run again without them.

    Args:
        errors: the exception of each failed message, by its index in the `Batch`.
    """

    def __init__(self, errors: Mapping[int, BaseException]) -> None:
        super().__init__(errors)
        self.errors = errors


class HandlerFault(OnceMQError):
    """A handler did something that is reserved for the framework."""


class SessionOwned(HandlerFault):
    """A handler tried to end the transaction or session that it was given."""


class TimeLimitExceeded(HandlerFault):
    """A handler took longer than its soft time limit; its unit was rolled back."""


class Unpublishable(HandlerFault):
    """A handler published to an unknown topic, or a message that no consumer of the topic could read."""


class RequestRefused(OnceMQError):
    """A protected request or call was not executed this time."""


class RequestKeyInvalid(RequestRefused):
    """A protected request has no key, or an unusable one."""


class RequestConflict(RequestRefused):
    """The key of this request was used before with different content."""


class RequestInProgress(RequestRefused):
    """The same request is being executed now: retry after `retry_after`."""

    def __init__(self, text: str, retry_after: timedelta = timedelta(seconds=1)) -> None:
        super().__init__(text)
        self.retry_after = retry_after


class OutcomeUnknown(RequestRefused):
    """An earlier attempt at this request ended without an answer: it may have been executed."""


class AnswerNotKept(RequestRefused):
    """The answer of this request cannot be kept, or was not.

    Args:
        text: why.
        status: the answer's status, if it had one.
        executed: whether the request was executed; False = all of it was rolled back.
    """

    def __init__(self, text: str, status: int | None = None, *, executed: bool = True) -> None:
        super().__init__(text)
        self.status = status
        self.executed = executed


class RequestError(OnceMQError):
    """A request that was published has no result.

    Args:
        text: what is known.
        topic: the topic's name.
        message_id: the id of the request's message.
    """

    def __init__(self, text: str, topic: str, message_id: str) -> None:
        super().__init__(text)
        self.topic = topic
        self.message_id = message_id


class RequestTimeout(RequestError):
    """No answer came in time. The request may still take effect; asked again with the same identity it does so once."""


class RequestFailed(RequestError):
    """The request is a dead letter, so it had no effect so far; or its answer cannot be read.

    Args:
        text: what is known.
        topic: the topic's name.
        message_id: the id of the request's message.
        reason: of the dead letter, such as `rejected` or `attempts`; `unreadable` for an answer that is not JSON.
    """

    def __init__(self, text: str, topic: str, message_id: str, reason: str) -> None:
        super().__init__(text, topic, message_id)
        self.reason = reason


class BrokerError(OnceMQError):
    """An error between this process and a message broker."""


class BrokerUnavailable(BrokerError):
    """The broker cannot be reached now; retrying may help."""


class BrokerRefused(BrokerError):
    """The broker refused; retrying the same will not help."""


class Unroutable(BrokerRefused):
    """There is no queue or topic for the message; it can be sent once one has been created."""


class PartlyPublished(BrokerError):
    """A broker did not confirm all of several messages; `errors` maps positions to reasons, the others are confirmed."""

    def __init__(self, topic: str, total: int, errors: Mapping[int, BrokerError]) -> None:
        first = min(errors)
        super().__init__(
            f"{len(errors)} of {total} messages to {topic!r} are not confirmed; number {first + 1}: {errors[first]}"
        )
        self.errors = dict(errors)


class SettleError(OnceMQError):
    """A delivery could not be settled as requested."""


class AlreadySettled(SettleError):
    """The delivery was settled before."""


class DeliveryVoid(SettleError):
    """The delivery's connection or lease is gone; the broker will redeliver the message."""


class IdsUnavailable(OnceMQError):
    """No id can be made now that is certain to be unique."""


class ClockSetBack(IdsUnavailable):
    """The machine's clock went back by more than can be waited out."""


class WorkerNumberLost(IdsUnavailable):
    """This process has no exclusive worker number now."""


class InfrastructureError(OnceMQError):
    """The database, or Redis, is unavailable or busy; no message is at fault."""


class RedisUnavailable(InfrastructureError):
    """Redis is unavailable or busy; no message is at fault.

    Attributes:
        sent: the command may have reached the server, and may have been applied.
    """

    def __init__(self, text: str, *, sent: bool = False) -> None:
        super().__init__(text)
        self.sent = sent


class ClaimStoreUnavailable(InfrastructureError):
    """The store of large bodies is away, or refuses; no message is at fault."""


class RedisRefused(OnceMQError):
    """Redis refused the command (wrong password, wrong type of key …); retrying will not help."""


class LedgerError(OnceMQError):
    """The framework's own tables are missing or of another version."""


class StrategyBug(OnceMQError):
    """A strategy failed in a hook that must not fail; no message is charged."""
