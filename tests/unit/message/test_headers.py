"""The headers in which attempts and causes travel."""

import json
import pickle
from copy import deepcopy
from datetime import UTC, datetime, timedelta

import pytest

from oncemq.message import headers


@pytest.mark.parametrize(
    ("text", "attempt"),
    [
        ("1", 1),
        ("7", 7),
        ("0", 1),
        ("-3", 1),
        ("", 1),
        ("x", 1),
        ("\u0663", 1),
        ("9" * 5000, 1),
        ("1.5", 1),
        (" 2", 1),
    ],
)
def test_an_attempt_is_read_or_one(text: str, attempt: int) -> None:
    """What someone forged into nonsense counts as the first try."""
    assert headers.attempt_of({headers.ATTEMPT: text}) == attempt


def test_a_message_without_the_header_is_a_first_try() -> None:
    """A fresh message has no attempt header."""
    assert headers.attempt_of({}) == 1


def test_a_time_is_read_in_utc() -> None:
    """A time with another offset is the same moment in UTC."""
    moment = headers.time_of({"at": "2024-05-01T12:00:00+02:00"}, "at")
    assert moment == datetime(2024, 5, 1, 10, tzinfo=UTC)
    assert moment.utcoffset() == timedelta(0)


def test_a_time_without_offset_is_utc() -> None:
    """A naive time is taken as UTC, never as the machine's own."""
    assert headers.time_of({"at": "2024-05-01T12:00:00"}, "at") == datetime(2024, 5, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    "text", ["", "yesterday", "0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59", "\ud800", "\0"]
)
def test_an_unreadable_time_is_none(text: str) -> None:
    """Forged and impossible times count as missing."""
    assert headers.time_of({"at": text}, "at") is None


def test_a_replay_keeps_the_users_headers_only() -> None:
    """Attempts and causes are left behind; the first publication and the message's id stay."""
    kept = {"tenant": "a", headers.PUBLISHED_AT: "x", headers.MESSAGE_ID: "y"}
    left = {headers.ATTEMPT: "6", headers.REASON: "failed", headers.ERROR_TEXT: "z"}
    assert headers.for_replay(kept | left) == kept


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"tenant": "north"},
        {"tenant": "north", headers.KEY: "k"},
        {"tenant": "north", headers.ATTEMPT: "2"},
    ],
)
def test_what_handlers_see_cannot_be_changed(given: dict[str, str]) -> None:
    """By no method of a dict, and the message's own headers stay as they are."""
    before, seen = dict(given), headers.without_ours(given)
    changes = (
        "seen['x'] = 'y'",
        "del seen['tenant']",
        "seen |= {'x': 'y'}",
        "seen.clear()",
        "seen.pop('tenant', None)",
        "seen.popitem()",
        "seen.setdefault('x', 'y')",
        "seen.update(x='y')",
    )
    for change in changes:
        with pytest.raises(TypeError, match=r"write \{\*\*envelope.headers, …\}"):
            exec(change, {"seen": seen})
    assert seen == {name: text for name, text in before.items() if not name.startswith("oncemq-")}
    assert given == before


def test_what_handlers_see_is_still_a_dict() -> None:
    """For JSON, pickle, copies and unions; copies may be changed."""
    seen = headers.without_ours({"tenant": "north"})
    assert json.dumps(seen) == '{"tenant": "north"}'
    for copied in (pickle.loads(pickle.dumps(seen)), deepcopy(seen)):
        assert (copied, type(copied)) == (seen, headers.ReadOnlyHeaders)
    assert {**seen, "x": "y"} == seen | {"x": "y"} == {"tenant": "north", "x": "y"}
