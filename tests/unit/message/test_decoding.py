"""From bodies to payloads, and what is refused on the way."""

import gzip
import tracemalloc
import zlib
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncemq.errors import Undecodable
from oncemq.message.decoding import Limits, make_decoder
from oncemq.message.envelope import Message


def decode(body: bytes, body_format: str = "json", limits: Limits | None = None, encoding: str | None = None):
    """Decode a body as a topic of this format does."""
    headers = {} if encoding is None else {"content-encoding": encoding}
    return make_decoder(body_format, limits)(Message("orders", body, headers=headers))


@pytest.mark.parametrize(
    ("body", "payload"),
    [
        (b'{"a": [1, 2.5, null, true, "x"]}', {"a": [1, 2.5, None, True, "x"]}),
        (b' \n{"a": 1}\r\n', {"a": 1}),
        (b"\xef\xbb\xbf{}", {}),
        (b'"\\ud83d\\ude00"', "😀"),
        (b'"\\\\ud800"', "\\ud800"),
        (b"1e3", 1000.0),
        (b"9" * 1000, int("9" * 1000)),
        (b'"' + b"9" * 5000 + b'"', "9" * 5000),
        (b'["' + b"[" * 5000 + b'"]', ["[" * 5000]),
        (b'["\\"' + b"[" * 5000 + b'", "\\\\"]', ['"' + "[" * 5000, "\\"]),
        (b'{"a": {"b": 1}, "b": {"b": 2}}', {"a": {"b": 1}, "b": {"b": 2}}),
    ],
    ids=lambda value: repr(value)[:20],
)
def test_json_is_decoded(body: bytes, payload) -> None:
    """Ordinary JSON gives ordinary values, also with spaces or a byte order mark around."""
    assert decode(body) == payload


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "empty"),
        (b"  ", "empty"),
        (b'{"a": }', "line 1 column 7"),
        (b'{\n"a": 1,\n"b" 2}', "line 3 column 5"),
        (b'{"a": 1} x', "line 1 column 9"),
        (b'{"a": 1}{"a": 2}', "more follows"),
        (b"[NaN]", "NaN"),
        (b"[-Infinity]", "-Infinity"),
        (b"[1e999]", "too large"),
        (b"[" + b" " * 2000 + b"-1E999]", "too large"),
        (b"[" + b"9" * 400 + b".0]", "too large"),
        (b"[" + b" " * 2000 + b"9" * 400 + b".0]", "too large"),
        (b"9" * 1001, "1,001 digits"),
        (b"9" * 5000, "5,000 digits"),
        (b'{"amount": 1, "x": {}, "amount": 2}', "names the field 'amount' twice"),
        (b'"\\ud800"', "surrogate"),
        (b'{"\\udc00": 1}', "surrogate"),
        (b'"\xed\xa0\x80"', "not UTF-8"),
        (b'{"a": "\xff"}', "byte 8"),
        ("{}".encode("utf-16"), "UTF-16"),
        (gzip.compress(b"{}", mtime=0), "content-encoding"),
        (b"[" * 101 + b"]" * 101, "deeper than 100"),
        (b'{"a":' * 100_000, "deeper than 100"),
        (b'"a\nb"', "control character"),
    ],
    ids=lambda value: repr(value)[:30],
)
def test_what_has_no_one_meaning_is_undecodable(body: bytes, words: str) -> None:
    """Every such body is refused with a text that says what and, where known, where."""
    with pytest.raises(Undecodable) as refusal:
        decode(body)
    assert words in str(refusal.value)


def test_a_hundred_levels_are_allowed() -> None:
    """The limit itself is not too deep."""
    decode(b"[" * 100 + b"]" * 100)


def test_depth_is_counted_not_brackets() -> None:
    """A flat body with many objects is not deep."""
    assert len(decode(b"[" + b"{}," * 5000 + b"{}]")) == 5001


def test_a_body_at_the_limit_is_decoded_and_one_above_is_not() -> None:
    """The limit counts bytes and is the topic's own."""
    assert decode(b'"12345678"', limits=Limits(body_bytes=10)) == "12345678"
    with pytest.raises(Undecodable, match="11 bytes, the most is 10"):
        decode(b'"123456789"', limits=Limits(body_bytes=10))


def test_a_crowd_of_values_is_refused_but_not_a_long_text() -> None:
    """Commas and brackets count outside texts only."""
    limits = Limits(json_values=100)
    assert decode(b'["' + b"," * 1000 + b'"]', limits=limits) == ["," * 1000]
    with pytest.raises(Undecodable, match="more than 100 values"):
        decode(b"[" + b"1," * 100 + b"1]", limits=limits)


@pytest.mark.parametrize(
    ("encoding", "body"),
    [
        ("gzip", gzip.compress(b"[1]", mtime=0)),
        ("GZIP ", gzip.compress(b"[1]", mtime=0)),
        ("x-gzip", gzip.compress(b"[1]", mtime=0)),
        ("deflate", zlib.compress(b"[1]")),
        ("identity", b"[1]"),
        ("", b"[1]"),
        ("utf-8", b"[1]"),
    ],
)
def test_a_known_encoding_is_undone(encoding: str, body: bytes) -> None:
    """It is gzip or deflate, in any case; a charset, which AMQP producers write there, means nothing."""
    assert decode(body, encoding=encoding) == [1]


@pytest.mark.parametrize(
    ("encoding", "body", "words"),
    [
        ("br", b"[1]", "'br'"),
        ("gzip", b"[1]", "is not gzip"),
        ("gzip", gzip.compress(b"[1]", mtime=0)[:-1], "ends in the middle"),
        ("gzip", gzip.compress(b"[1]", mtime=0) * 2, "more follows"),
        ("deflate", gzip.compress(b"[1]", mtime=0), "is not deflate"),
        ("gzip", gzip.compress(b" " * 5_000_000, mtime=0), "after decompression"),
        ("a\r\nb", b"", "'a\\r\\nb'"),
    ],
)
def test_a_wrong_encoding_is_undecodable(encoding: str, body: bytes, words: str) -> None:
    """Unknown encodings, damaged data and bombs are refused, in words."""
    with pytest.raises(Undecodable) as refusal:
        decode(body, encoding=encoding)
    assert words in str(refusal.value)


def test_a_bomb_is_never_unpacked() -> None:
    """A body that would grow a thousandfold takes no more memory than the limit allows."""
    bomb = gzip.compress(b"0" * 64_000_000, mtime=0)
    tracemalloc.start()
    try:
        with pytest.raises(Undecodable, match="after decompression"):
            decode(bomb, limits=Limits(body_bytes=1_000_000), encoding="gzip")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 8_000_000


def test_text_and_bytes_are_kept() -> None:
    """The other formats give the body as it is."""
    assert decode("ö\0".encode(), "text") == "ö\0"
    assert decode(b"\xff\0", "bytes") == b"\xff\0"


def test_text_must_be_utf8() -> None:
    """Other charsets are refused with the first wrong byte."""
    with pytest.raises(Undecodable, match="byte 2"):
        decode(b"a\xf6", "text")


def test_an_unknown_format_is_an_error_with_a_suggestion() -> None:
    """A typo in the format is found at start."""
    with pytest.raises(ValueError, match="did you mean 'json'"):
        make_decoder("jsn")


def test_no_error_carries_the_body() -> None:
    """Neither text nor cause of a refusal can bring a secret into a log."""
    for body in (
        b'{"password": "hunter2" "x"}',
        b'{"password": "hunter2\xff"}',
        b'{"p": "hunter2", "p": "\\ud800"}',
    ):
        with pytest.raises(Undecodable) as refusal:
            decode(body)
        error = refusal.value
        assert "hunter2" not in str(error)
        assert error.__cause__ is None
        assert error.__suppress_context__ or error.__context__ is None


@given(st.binary())
def test_any_bytes_are_decoded_or_undecodable(body: bytes) -> None:
    """Nothing but Undecodable leaves the decoder."""
    for body_format in ("json", "confluent-json", "text", "bytes"):
        for encoding in (None, "gzip", "deflate"):
            with suppress(Undecodable):
                decode(body, body_format, encoding=encoding)
