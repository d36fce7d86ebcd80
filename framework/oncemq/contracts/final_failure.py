"""The argument that tells a consumer's `on_dead` function why its message failed for good."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FinalFailure:
    """Why a message becomes a dead letter: `def compensate(order: OrderPaid, failure: FinalFailure, session: Session)`.

    Args:
        code: the reason of the dead letter, such as `attempts-exhausted` or `rejected`.
        error: class and text of the last error; secrets are masked.
        attempts: how often the message was tried.
    """

    code: str
    error: str
    attempts: int
