"""Messages that failed, and whose place another message has taken before they could be retried.

A strategy that compares places (a state, a number, a version) calls them late, as if the network had delayed them. But
their handler has run and was rolled back: acknowledging them would lose them silently.
"""

from collections.abc import Mapping
from typing import Final

from oncemq.contracts.verdict import Outcome, Verdict, reject
from oncemq.message import headers
from oncemq.message.envelope import Delivery

OVERTAKEN: Final = "overtaken"
"""The reason of such dead letters."""
NOT_TRIED: Final = "no"


def was_tried(delivery: Delivery) -> bool:
    """Return whether the handler ran and failed; a redelivery is not an attempt, nor is a retry requested by a strategy."""
    message = delivery.message
    failed = message.first_failed_at is not None and message.headers.get(headers.TRIED) != NOT_TRIED
    return failed or delivery.crashes > 0 or delivery.immediate > 0


def tries_of(delivery: Delivery, verdict: Verdict) -> Mapping[str, str]:
    """Return the header of a copy by which a later `was_tried` knows whether the handler has run.

    It is kept in every later copy of the message: a failed message must not stay marked as untried.
    """
    if verdict.untried and not was_tried(delivery):
        return {headers.TRIED: NOT_TRIED}
    return {headers.TRIED: "yes"} if headers.TRIED in delivery.message.headers else {}


def must_hold_key(added: Mapping[str, str]) -> bool:
    """Return whether later messages of its key must wait for a message redelivered with these headers.

    Not if it has not run yet, because it came early or its row is not ready: the message that it waits for may be
    one of them.
    """
    return headers.WAITING_SINCE not in added and added.get(headers.ERROR_CLASS) != Outcome.RETRY


def overtaken(delivery: Delivery, verdict: Verdict) -> Verdict:
    """Return the verdict for a message that was tried before, where `verdict` would settle it unapplied."""
    why = verdict.reason or "another message has taken its place"
    return reject(f"{why}; it had failed before: {first_error(delivery)}", code=OVERTAKEN)


def first_error(delivery: Delivery) -> str:
    """Return the reason of the message's last failure."""
    found = delivery.message.headers
    text = found.get(headers.ERROR_TEXT) or found.get(headers.ERROR_CLASS, "")
    return text or "a process died while it ran"
