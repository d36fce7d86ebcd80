"""Every error that OnceMQ raises, as one tree with one root.

OnceMQError
├── ConfigError              the app as declared cannot work; carries every problem found
├── UnknownName              a strategy, adapter or option that does not exist, with a suggestion
├── MissingExtra             an optional dependency is not installed; says the install line
├── MessageRefused           this message can never be applied; ends as a dead letter
│   ├── Undecodable          its bytes are not what the topic's format says
│   ├── InvalidPayload       it decodes, but is not what the handler's type says
│   ├── MissingKey           the key expression found nothing
│   └── InvalidKey           key, version or identity is not usable (empty, NUL, too long …)
├── Signal                   raised by handlers to say what shall happen to this message
│   ├── Reject               dead-letter it now
│   └── Retry                deliver it again later
├── HandlerFault             a handler did what only the framework may do
│   ├── SessionOwned         it ended the transaction or the session it was lent
│   ├── TimeLimitExceeded    it took longer than its soft time limit
│   └── Unpublishable        it published what no consumer of that topic could read
├── RequestRefused           a protected request or call was not carried out this time
│   ├── RequestKeyInvalid    it has no key, or one that cannot be used
│   ├── RequestConflict      its key came before, with other content
│   ├── RequestInProgress    the same one is being carried out now; come again
│   ├── OutcomeUnknown       an earlier try ended without an answer; it may have been carried out
│   └── AnswerNotKept        it has been carried out, but its answer was not kept
├── BrokerError
│   ├── BrokerUnavailable    cannot be reached now; trying again may help
│   ├── BrokerRefused        it said no; trying again will not help
│   │   └── Unroutable       no queue or topic is there that could take the message
│   └── PartlyPublished      it did not confirm all of many messages; says which
├── SettleError
│   ├── AlreadySettled       a delivery was settled twice
│   └── DeliveryVoid         the connection or lease of the delivery is gone; the broker delivers it again
├── IdsUnavailable           no id can be made that nobody else may make, too
│   ├── ClockSetBack         the machine's clock went back by more than can be waited for
│   └── WorkerNumberLost     this process has no worker number of its own now
├── UniqueViolation          oncemq.retry.unique: a row with these unique values is there already
├── InfrastructureError      the database is away or busy; nobody's message is at fault
│   └── RedisUnavailable     Redis is; says whether the command may have been applied
├── RedisRefused             Redis said no; the same again will not help
├── LedgerError              the framework's own tables are missing or of another version
└── StrategyBug              a strategy failed where it may not; the consumer pauses
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
    """The declared app cannot work; `problems` holds one line for each reason; a single one may be a plain text."""

    def __init__(self, problems: Sequence[Located | str] | str) -> None:
        self.problems: tuple[Located | str, ...] = (
            (problems,) if isinstance(problems, str) else tuple(problems)
        )
        super().__init__("\n".join(str(problem) for problem in self.problems))


class UnknownName(OnceMQError):
    """A name that nothing is registered under."""


class MissingExtra(OnceMQError):
    """An optional dependency is not installed."""


class MessageRefused(OnceMQError):
    """This message can never be applied; `reason` becomes the dead letter's reason."""

    reason = "refused"


class Undecodable(MessageRefused):
    """The body is not what the topic's format says."""

    reason = "undecodable"


class InvalidPayload(MessageRefused):
    """The body decodes, but is not what the handler's type says."""

    reason = "invalid"


class MissingKey(MessageRefused):
    """The key expression found nothing in the message; a key is never invented."""

    reason = "no-key"


class InvalidKey(MessageRefused):
    """The key, version or identity cannot be used as one."""

    reason = "invalid-key"


class Signal(OnceMQError):
    """What a handler raises to decide about its message; ordinary control flow."""


class Reject(Signal):
    """Dead-letter this message now: `raise Reject("why")`."""


class Retry(Signal):
    """Deliver this message again; after `after`, or when the retry policy says so.

    Args:
        why: a few words for people.
        after: seconds (`30`, `1.5`), text (`"5m"`) or a timedelta; None = as the retry policy says.

    Raises:
        TypeError, ValueError: `after` is none of these, negative, not finite or longer than ten years.
    """

    def __init__(self, why: str = "", *, after: timedelta | float | str | None = None) -> None:
        super().__init__(why)
        self.after: timedelta | None = None if after is None else delay_of(after)


class HandlerFault(OnceMQError):
    """A handler did what only the framework may do."""


class SessionOwned(HandlerFault):
    """A handler tried to end the transaction or session that it was lent."""


class TimeLimitExceeded(HandlerFault):
    """A handler took longer than its soft time limit; its unit was rolled back."""


class Unpublishable(HandlerFault):
    """A handler published to a topic that is not there, or what no consumer of the topic could read."""


class RequestRefused(OnceMQError):
    """A protected request or call was not carried out this time."""


class RequestKeyInvalid(RequestRefused):
    """A protected request has no key, or one that cannot be used."""


class RequestConflict(RequestRefused):
    """The key of this request came before, with other content."""


class RequestInProgress(RequestRefused):
    """The same request is being carried out now: come again after `retry_after`."""

    def __init__(self, text: str, retry_after: timedelta = timedelta(seconds=1)) -> None:
        super().__init__(text)
        self.retry_after = retry_after


class OutcomeUnknown(RequestRefused):
    """An earlier try of this request ended without an answer: it may have been carried out."""


class AnswerNotKept(RequestRefused):
    """This request has been carried out, but its answer was not kept; `status` is the answer's, if it had one."""

    def __init__(self, text: str, status: int | None = None) -> None:
        super().__init__(text)
        self.status = status


class BrokerError(OnceMQError):
    """Something went wrong between us and a message broker."""


class BrokerUnavailable(BrokerError):
    """The broker cannot be reached now; trying again may help."""


class BrokerRefused(BrokerError):
    """The broker said no; trying the same again will not help."""


class Unroutable(BrokerRefused):
    """There is no queue or topic that could take the message; it can be sent when one has been made."""


class PartlyPublished(BrokerError):
    """A broker did not confirm all of many messages; `errors` holds the reason by position, the others are confirmed."""

    def __init__(self, topic: str, total: int, errors: Mapping[int, BrokerError]) -> None:
        first = min(errors)
        super().__init__(
            f"{len(errors)} of {total} messages to {topic!r} are not confirmed; number {first + 1}: {errors[first]}"
        )
        self.errors = dict(errors)


class SettleError(OnceMQError):
    """A delivery could not be settled as asked."""


class AlreadySettled(SettleError):
    """The delivery had been settled before."""


class DeliveryVoid(SettleError):
    """The delivery's connection or lease is gone; the broker will deliver the message again."""


class IdsUnavailable(OnceMQError):
    """No id can be made now that nobody else may make, too."""


class ClockSetBack(IdsUnavailable):
    """The machine's clock went back by more than can be waited for."""


class WorkerNumberLost(IdsUnavailable):
    """This process has no worker number of its own now."""


class InfrastructureError(OnceMQError):
    """The database, or Redis, is away or busy; no message is at fault."""


class RedisUnavailable(InfrastructureError):
    """Redis is away or busy; no message is at fault.

    Attributes:
        sent: the command may have reached the server, and may have been applied.
    """

    def __init__(self, text: str, *, sent: bool = False) -> None:
        super().__init__(text)
        self.sent = sent


class RedisRefused(OnceMQError):
    """Redis said no (wrong password, a key of another type …); the same again will not help."""


class LedgerError(OnceMQError):
    """The framework's own tables are missing or of another version."""


class StrategyBug(OnceMQError):
    """A strategy failed in a hook that may not fail; no message is charged."""
