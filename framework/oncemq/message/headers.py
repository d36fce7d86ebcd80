"""Defines the headers that carry attempts, first failures and causes with a message, on every broker."""

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, NoReturn

PREFIX = "oncemq-"
TRACEPARENT = "traceparent"
"""W3C's, of OpenTelemetry."""
_TRACEPARENT = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}.*")

ATTEMPT = "oncemq-attempt"
FIRST_FAILED_AT = "oncemq-first-failed-at"
LAST_FAILED_AT = "oncemq-last-failed-at"
PUBLISHED_AT = "oncemq-published-at"
MESSAGE_ID = "oncemq-message-id"
CONSUMER = "oncemq-consumer"
ORIGIN_TOPIC = "oncemq-origin-topic"
KEY = "oncemq-key"
WAITING_SINCE = "oncemq-waiting-since"
TRIED = "oncemq-tried"
"""`no` while only strategies have deferred the message; without it a message that failed counts as tried."""
REASON = "oncemq-reason"
ERROR_CLASS = "oncemq-error-class"
ERROR_TEXT = "oncemq-error-text"
TRACEBACK = "oncemq-traceback"
"""Of the last attempt: the frames from the handler on."""
ON_DEAD = "oncemq-on-dead"
"""Of a dead letter: `done`, or why the consumer's `on_dead` function failed for it."""
HISTORY_MAC = "oncemq-history-mac"
"""Signs the attempts, see `oncemq.message.signed_history`."""
DEAD_ID = "oncemq-dead-id"
DEAD_AT = "oncemq-dead-at"
DUE_AT = "oncemq-due-at"
"""In the outbox only: when the broker, whose timer holds it back, shall deliver the message."""
PRIORITY = "oncemq-priority"
"""Of a message to be published, until its adapter has it: its priority, for brokers that have some."""
SEALED = "oncemq-sealed"
"""The body contains the whole original message, see `oncemq.message.sealed`."""

CLAIM = "oncemq-claim"
"""Marks a message whose body refers to one in a store, see `oncemq.message.claims`."""

ANSWER_FAILURES = "oncemq-answer-failures"
"""Of a request: its requester also understands one that says why it has failed."""
FAILED = "oncemq-failed"
"""Of an answer: it says why its request has failed."""

CONTENT_TYPE = "content-type"
CONTENT_ENCODING = "content-encoding"

_USUAL = (PUBLISHED_AT, KEY, MESSAGE_ID)
"""Headers that adapters add when they publish."""

KEPT_BY_REPLAY = frozenset({PUBLISHED_AT, MESSAGE_ID, KEY, CLAIM})

HISTORY = frozenset(
    {
        ATTEMPT,
        FIRST_FAILED_AT,
        LAST_FAILED_AT,
        CONSUMER,
        ORIGIN_TOPIC,
        REASON,
        ERROR_CLASS,
        ERROR_TEXT,
        TRACEBACK,
        SEALED,
        TRIED,
        WAITING_SINCE,
        ON_DEAD,
        HISTORY_MAC,
    }
)
"""Headers written only by a consumer group: trusted on messages from the group's own places, else dropped."""

SPARED_FIRST = (TRACEBACK, ERROR_TEXT, ERROR_CLASS, LAST_FAILED_AT, CONSUMER, ORIGIN_TOPIC)
"""Headers that a copy may drop, in this order, when its headers are too large."""

_SHORT_ERROR = 200
_EARLIEST = datetime(1970, 1, 1, tzinfo=UTC)
_LATEST = datetime(2100, 1, 1, tzinfo=UTC)


class ReadOnlyHeaders(dict[str, str]):
    """Headers as handlers see them: a dict, also for JSON and pickle, which refuses every change.

    The message, its retries and its dead letter are made from the same headers, so what a handler writes would reach them.
    """

    __slots__ = ()

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise TypeError("a message's headers cannot be changed: write {**envelope.headers, …} for a copy")

    __setitem__ = __delitem__ = __ior__ = _refuse
    clear = pop = popitem = setdefault = update = _refuse

    def __reduce__(self) -> tuple[Any, ...]:
        return ReadOnlyHeaders, (dict(self),)


_take_out = dict[str, str].pop
_NONE = ReadOnlyHeaders()


def without_ours(headers: Mapping[str, str]) -> Mapping[str, str]:
    """Return the headers that handlers see: the application's own, the same on a first attempt and on each retry."""
    if not headers:
        return _NONE
    found = ReadOnlyHeaders(headers)
    if PREFIX not in "\0".join(found):
        return found
    for name in _USUAL:
        _take_out(found, name, None)
    # On a first attempt these are all: one check is cheaper than looking up each name.
    if PREFIX in "\0".join(found):
        return ReadOnlyHeaders({name: text for name, text in found.items() if not name.startswith(PREFIX)})
    return found


def attempt_of(headers: Mapping[str, str]) -> int:
    """Return the attempt number of this delivery; 1 if the header is missing or forged."""
    text = headers.get(ATTEMPT, "1")
    return max(1, int(text)) if text.isascii() and text.isdigit() and len(text) <= 6 else 1


def time_of(headers: Mapping[str, str], name: str) -> datetime | None:
    """Return the time in the header `name`, in UTC; None if missing, unreadable or outside 1970 to 2100."""
    text = headers.get(name)
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is not UTC:
            moment = moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        return None
    return plausible(moment)


def plausible(moment: datetime) -> datetime | None:
    """Return the time if it is in 1970 to 2100; no order or deadline may depend on other values."""
    return moment if _EARLIEST <= moment < _LATEST else None


def shorter(added: Mapping[str, str]) -> Iterator[Mapping[str, str]]:
    """Yield our headers, then ever fewer of them in case they do not fit: attempts, times and reason stay."""
    yield added
    headers = dict(added)
    if headers.pop(TRACEBACK, None) is not None:
        yield dict(headers)
    if ERROR_TEXT in headers:
        headers[ERROR_TEXT] = headers[ERROR_TEXT][:_SHORT_ERROR]
        yield headers
    for name in SPARED_FIRST:
        headers.pop(name, None)
    yield headers


def for_replay(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the headers of a dead letter to be replayed: the user's own, without our attempts and causes."""
    return {
        name: text for name, text in headers.items() if not name.startswith(PREFIX) or name in KEPT_BY_REPLAY
    }


def trace_of(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the id of the trace that a message belongs to, as `trace_id`, from its W3C `traceparent`; nothing without one."""
    found = _TRACEPARENT.fullmatch(headers.get(TRACEPARENT, ""))
    return {} if found is None else {"trace_id": found[1]}
