"""The headers in which attempts, first failures and causes travel with a message, on every broker."""

from collections.abc import Mapping
from datetime import UTC, datetime

PREFIX = "oncemq-"

ATTEMPT = "oncemq-attempt"
FIRST_FAILED_AT = "oncemq-first-failed-at"
LAST_FAILED_AT = "oncemq-last-failed-at"
PUBLISHED_AT = "oncemq-published-at"
MESSAGE_ID = "oncemq-message-id"
CONSUMER = "oncemq-consumer"
ORIGIN_TOPIC = "oncemq-origin-topic"
KEY = "oncemq-key"
REASON = "oncemq-reason"
ERROR_CLASS = "oncemq-error-class"
ERROR_TEXT = "oncemq-error-text"

CONTENT_TYPE = "content-type"
CONTENT_ENCODING = "content-encoding"

_KEPT_BY_REPLAY = frozenset({PUBLISHED_AT, MESSAGE_ID, KEY})


def attempt_of(headers: Mapping[str, str]) -> int:
    """Return which try this delivery is; 1 where the header is missing or was forged into nonsense."""
    text = headers.get(ATTEMPT, "1")
    return max(1, int(text)) if text.isascii() and text.isdigit() and len(text) <= 6 else 1


def time_of(headers: Mapping[str, str], name: str) -> datetime | None:
    """Return the time in the header `name`, in UTC; None where it is missing or unreadable."""
    text = headers.get(name)
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is UTC:
            return moment
        return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        return None


def for_replay(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the headers of a dead letter that starts anew: the user's own, without our attempts and causes."""
    return {
        name: text for name, text in headers.items() if not name.startswith(PREFIX) or name in _KEPT_BY_REPLAY
    }
