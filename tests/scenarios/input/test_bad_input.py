"""What can never be applied ends as a dead letter that says why in plain words, and the next message is applied."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from oncemq.message import headers
from oncemq.message.envelope import OutgoingMessage
from support.apps.judged_app import CONSUMER, JudgedApp, fine
from support.brokers.places import EMBEDDED, POSTGRESQL, Place, make_place

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]


def body(key: str, *, more: str = "") -> bytes:
    """Return a body with this JSON text as its key."""
    return f'{{"id": "bad", "key": {key}{more}}}'.encode()


_KEY = "key body.key of topic 'T'"
UNDECODABLE, INVALID, NO_KEY, BAD_KEY = "undecodable", "invalid", "no-key", "invalid-key"
CASES: dict[str, tuple[bytes, str, str]] = {
    "no JSON": (b"hello", UNDECODABLE, "the body is not JSON: Expecting value at line 1 column 1"),
    "nothing": (b"", UNDECODABLE, "the body is empty, where JSON was expected"),
    "cut off": (
        b'{"id": "x", "key"',
        UNDECODABLE,
        "the body is not JSON: Expecting ':' delimiter at line 1 column 18",
    ),
    "no UTF-8": (
        b'{"id": "caf\xe9", "key": "k"}',
        UNDECODABLE,
        "the body is not UTF-8: invalid continuation byte at byte 12",
    ),
    "gzip unannounced": (
        b"\x1f\x8b\x08\x00",
        UNDECODABLE,
        "the body is not UTF-8; it looks like gzip without the header content-encoding: gzip",
    ),
    "long integer": (
        body('"k"', more=', "n": ' + "9" * 5000),
        UNDECODABLE,
        "an integer has 5,000 digits, the most is 1,000",
    ),
    "NaN": (body('"k"', more=', "n": NaN'), UNDECODABLE, "NaN is not JSON"),
    "too large a number": (body('"k"', more=', "n": 1e999'), UNDECODABLE, "the number 1e999 is too large"),
    "half a surrogate": (
        body('"k"', more=', "n": "\\ud800"'),
        UNDECODABLE,
        "a text holds half of a surrogate pair (\\ud800 to \\udfff), which is no character",
    ),
    "nesting": (
        body('"k"', more=', "n": ' + "[" * 100_000 + "]" * 100_000),
        UNDECODABLE,
        "the JSON is nested deeper than 100 levels",
    ),
    "a field twice": (
        body('"k"', more=', "key": "other"'),
        UNDECODABLE,
        "an object names the field 'key' twice; which one counts is not defined",
    ),
    "oversize": (
        body('"k"', more=', "n": "' + "x" * 4 * 1024 * 1024 + '"'),
        UNDECODABLE,
        "the body has 4,194,338 bytes, the most is 4,194,304",
    ),
    "wrong schema": (
        b'{"id": "a", "key": "k", "deadly": "perhaps"}',
        INVALID,
        "the body is not a valid Event: deadly: Input should be a valid boolean, unable to interpret input",
    ),
    "no object": (b"[1, 2]", NO_KEY, _KEY + " was not found in the message, and a key is never invented"),
    "no key": (b'{"id": "bad"}', NO_KEY, _KEY + " was not found in the message, and a key is never invented"),
    "null key": (body("null"), NO_KEY, _KEY + " was not found in the message, and a key is never invented"),
    "empty key": (
        body('""'),
        BAD_KEY,
        _KEY + " is empty: a message without a key of its own cannot be told from another",
    ),
    "NUL key": (body('"a\\u0000b"'), BAD_KEY, _KEY + " holds a NUL character, which databases refuse"),
    "over-long key": (
        body(json.dumps("é" * 200)),
        BAD_KEY,
        _KEY + " has 400 bytes, the most is 255: use a shorter field or an id",
    ),
    "boolean key": (body("true"), BAD_KEY, _KEY + " is a boolean: only text and integers have one spelling"),
    "fractional key": (
        body("1.5"),
        BAD_KEY,
        _KEY + " is a number with a fraction or exponent: only text and integers have one spelling",
    ),
    "object as key": (
        body('{"a": 1}'),
        BAD_KEY,
        _KEY + " is an object: only text and integers have one spelling",
    ),
}


@pytest.fixture(params=[EMBEDDED, pytest.param(POSTGRESQL, marks=pytest.mark.server)])
def place(request: pytest.FixtureRequest, tmp_path: Path, fresh: str) -> Iterator[Place]:
    """Both brokers."""
    yield from make_place(request.param, request, tmp_path, fresh)


def test_what_cannot_be_applied_is_a_dead_letter_and_the_next_message_is_applied(place: Place) -> None:
    """Each has its original bytes, its reason and a text that a person understands; nothing is stuck behind it."""
    app = JudgedApp(place)
    good = [f"good-{number}" for number in range(len(CASES))]
    for valid, (bad, _reason, _text) in zip(good, CASES.values(), strict=True):
        app.send([OutgoingMessage(bad)])
        app.publish([valid], twice=0.0)
    app.program.succeed("run", "--until-idle", "2s", timeout=90)
    letters = {letter.message.body: letter.message.headers for letter in app.dead_letters()}
    found = {
        name: (letters[bad][headers.REASON], letters[bad][headers.ERROR_TEXT].replace(place.name, "T"))
        for name, (bad, _reason, _text) in CASES.items()
        if bad in letters
    }
    assert found == {name: (reason, text) for name, (_bad, reason, text) in CASES.items()}
    assert len(letters) == len(CASES)
    assert app.judge() == fine()
    assert place.unsettled(CONSUMER) == 0
