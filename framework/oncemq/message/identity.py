"""Validates keys, versions and identities, and gives each its canonical spelling."""

from collections.abc import Sequence
from typing import Any

from oncemq.errors import InvalidKey, MissingKey

MAX_KEY_BYTES = 255
"""UTF-8 bytes of a key: together with a consumer's name it fits an index of every supported database."""

MAX_IDENTITY_BYTES = 512
"""UTF-8 bytes of an encoded identity; 3,072 is the limit of an index entry in MariaDB."""

MAX_VERSION = 2**63 - 1
MIN_VERSION = -(2**63)

_MAX_INTEGER_BITS = 4096
"""An integer of more bits fits no key, and Python would convert it slowly or refuse to."""


def canonical_text(value: Any, source: str, *, max_bytes: int = MAX_IDENTITY_BYTES) -> str:
    """Return the canonical spelling of `value`; the integer 1 and the text "1" have the same.

    Args:
        value: the result of an expression.
        source: its origin, for the error, such as `key body.order_id of topic 'orders'`.
        max_bytes: maximum of UTF-8 bytes.

    Raises:
        MissingKey: it is None.
        InvalidKey: its type has no canonical spelling, or it is empty, too long, or holds characters no database stores.
    """
    if type(value) is str:
        text = value
    elif type(value) is int:
        text = _integer_text(value, source)
    else:
        raise _wrong_type(value, source)
    if not text:
        raise InvalidKey(f"{source} is empty: a message without a key of its own cannot be told from another")
    size = len(text) if text.isascii() else _utf8_length(text, source)
    if size > max_bytes:
        raise InvalidKey(f"{source} has {size} bytes, the most is {max_bytes}: use a shorter field or an id")
    if "\0" in text:
        raise InvalidKey(f"{source} holds a NUL character, which databases refuse")
    return text


def canonical_key(value: Any, source: str) -> str:
    """Return the key's canonical spelling.

    Raises:
        MissingKey: it is missing; a key is never invented.
        InvalidKey: it cannot be used as a key.
    """
    return canonical_text(value, source, max_bytes=MAX_KEY_BYTES)


def canonical_version(value: Any, source: str) -> int:
    """Return the version: a 64-bit integer, or the same in decimal digits.

    Raises:
        InvalidKey: it is missing or something else.
    """
    if type(value) is str:
        number = _decimal(value, source)
    elif type(value) is int:
        number = value
    elif value is None:
        raise InvalidKey(f"{source} was not found: this topic declares a version, so each message needs one")
    else:
        raise InvalidKey(f"{source} is {_type_name(value)}: a version is an integer")
    if MIN_VERSION <= number <= MAX_VERSION:
        return number
    raise InvalidKey(f"{source} does not fit 64 bits")


def join_parts(parts: Sequence[str], source: str, *, max_bytes: int = MAX_IDENTITY_BYTES) -> str:
    """Return one text for several canonical texts; different parts never give the same text.

    Parts are joined by `:`; inside a part `:` is written `%3A` and `%` is written `%25`, also in a single
    part, so that the part `a:b` is not the two parts `a` and `b`.

    Raises:
        InvalidKey: the whole is too long.
    """
    text = ":".join(map(escape_part, parts))
    size = len(text) if text.isascii() else len(text.encode())
    if size > max_bytes:
        raise InvalidKey(f"{source} has {size} bytes, the most is {max_bytes}: use shorter fields or an id")
    return text


def escape_part(text: str) -> str:
    """Return `text` escaped for use inside an identity."""
    if "%" in text:
        text = text.replace("%", "%25")
    return text.replace(":", "%3A") if ":" in text else text


def _integer_text(value: int, source: str) -> str:
    if value.bit_length() > _MAX_INTEGER_BITS:
        raise InvalidKey(f"{source} is an integer of {value.bit_length()} bits: use a shorter field or an id")
    return str(value)


def _utf8_length(text: str, source: str) -> int:
    try:
        return len(text.encode())
    except UnicodeEncodeError:
        raise InvalidKey(f"{source} holds half of a surrogate pair, which is not text") from None


def _decimal(text: str, source: str) -> int:
    digits = text.removeprefix("-")
    if len(digits) > 19 or not (digits.isascii() and digits.isdigit()):
        raise InvalidKey(f"{source} is text but not an integer in up to 19 decimal digits")
    return int(text)


def _wrong_type(value: Any, source: str) -> MissingKey | InvalidKey:
    if value is None:
        return MissingKey(f"{source} was not found in the message, and a key is never invented")
    return InvalidKey(f"{source} is {_type_name(value)}: only text and integers have one spelling")


def _type_name(value: Any) -> str:
    names = {
        bool: "a boolean",
        float: "a number with a fraction or exponent",
        dict: "an object",
        list: "an array",
        bytes: "raw bytes",
        str: "text",
    }
    return names.get(type(value), f"of type {type(value).__name__}")
