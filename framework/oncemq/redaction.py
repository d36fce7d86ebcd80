"""What must not be shown: credentials in any text, and control characters that could forge a line."""

import re
from collections.abc import Iterable
from functools import lru_cache
from urllib.parse import quote, quote_plus

MASK = "***"

MIN_KNOWN_SECRET = 6
"""Shorter known secrets are masked by their place only (URL, field): `guest` would mask half the log."""

_NAMES = (
    r"pass(?:word|wd|phrase)|pwd|secret|token|api[_-]?key|access[_-]?key|private[_-]?key|credential|cookie"
)
_STEMS = ("pass", "pwd", "secret", "token", "api", "access", "private", "credential", "cookie")
"""At least one of these is in each of `_NAMES`."""
_SCHEMES = ("bearer", "basic")

_SECRET_NAME = re.compile(rf"(?:{_NAMES}|authorization|^pass$)", re.IGNORECASE)
# Up to the last @ of the word: a password written without percent-encoding may hold any other character.
# All repetitions are bounded, so that a hostile text costs no more than a plain one.
_USERINFO = re.compile(r"(://[^\s/:@]{0,200}:)\S{0,500}@")
_ASSIGNMENT = re.compile(
    rf"""((?:{_NAMES})[\w-]{{0,30}}["']?\s{{0,5}}[=:]\s{{0,5}})("[^"]{{0,500}}"|'[^']{{0,500}}'|[^\s,;&)\]}}]+)""",
    re.IGNORECASE,
)
_AUTHORIZATION = re.compile(rf"\b({'|'.join(_SCHEMES)})\s{{1,5}}[\w+/=.~-]{{8,}}", re.IGNORECASE)


@lru_cache(maxsize=1024)
def is_secret_name(name: str) -> bool:
    """Return whether a field of this name holds something that is never shown."""
    return _SECRET_NAME.search(name) is not None


def escape(text: str) -> str:
    r"""Return `text` on one line: what is not printable, ANSI and bidi codes included, becomes like `\n` or `\x1b`."""
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode("ascii")
        for character in text
    )


class Redactor:
    """Masks credentials in texts: where URLs and assignments hold them, and known ones wherever they stand.

    Args:
        secrets: values known to be secret, such as those of `${VAR}` in a password; also found percent-encoded.
    """

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        forms = {
            form
            for secret in secrets
            if len(secret) >= MIN_KNOWN_SECRET
            for form in (secret, quote(secret, safe=""), quote_plus(secret), repr(secret)[1:-1])
        }
        self._forms = sorted(forms, key=len, reverse=True)
        self._known = re.compile("|".join(map(re.escape, self._forms)))

    def __repr__(self) -> str:
        return "<Redactor>"

    def __call__(self, text: str) -> str:
        """Return `text` without credentials."""
        if _holds(text, self._forms):
            text = self._known.sub(MASK, text)
        if "://" in text:
            text = _USERINFO.sub(rf"\1{MASK}@", text)
        # Beyond ASCII a pattern that ignores case knows letters that lower() does not.
        lowered = text.lower() if text.isascii() else None
        if lowered is None or _holds(lowered, _STEMS):
            text = _ASSIGNMENT.sub(rf"\1{MASK}", text)
        if lowered is None or _holds(lowered, _SCHEMES):
            text = _AUTHORIZATION.sub(rf"\1 {MASK}", text)
        return text


def _holds(text: str, parts: Iterable[str]) -> bool:
    """Return whether one of `parts` is in `text`: far cheaper than to search a traceback for a pattern."""
    for part in parts:  # noqa: SIM110 - any() with a generator takes three times as long
        if part in text:
            return True
    return False
