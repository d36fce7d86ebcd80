"""What must not be shown: credentials in any text, and control characters that could forge a line."""

import re
from collections.abc import Iterable
from urllib.parse import quote, quote_plus

MASK = "***"

MIN_KNOWN_SECRET = 6
"""Shorter known secrets are masked by their place only (URL, field): `guest` would mask half the log."""

_NAMES = (
    r"pass(?:word|wd|phrase)|pwd|secret|token|api[_-]?key|access[_-]?key|private[_-]?key|credential|cookie"
)
_STEMS = ("pass", "pwd", "secret", "token", "api", "access", "private", "credential", "cookie")
"""At least one of these is in each of `_NAMES`."""

_SECRET_NAME = re.compile(rf"(?:{_NAMES}|authorization|^pass$)", re.IGNORECASE)
# Up to the last @ of the word: a password written without percent-encoding may hold any other character.
# All repetitions are bounded, so that a hostile text costs no more than a plain one.
_USERINFO = re.compile(r"(://[^\s/:@]{0,200}:)\S{0,500}@")
_ASSIGNMENT = re.compile(
    rf"""((?:{_NAMES})[\w-]{{0,30}}["']?\s{{0,5}}[=:]\s{{0,5}})("[^"]{{0,500}}"|'[^']{{0,500}}'|[^\s,;&)\]}}]+)""",
    re.IGNORECASE,
)
_AUTHORIZATION = re.compile(r"\b(bearer|basic)\s{1,5}[\w+/=.~-]{8,}", re.IGNORECASE)


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
        longest_first = sorted(forms, key=len, reverse=True)
        self._known = re.compile("|".join(map(re.escape, longest_first))) if forms else None

    def __repr__(self) -> str:
        return "<Redactor>"

    def __call__(self, text: str) -> str:
        """Return `text` without credentials."""
        if self._known is not None:
            text = self._known.sub(MASK, text)
        if "://" in text:
            text = _USERINFO.sub(rf"\1{MASK}@", text)
        if _may_assign(text):
            text = _ASSIGNMENT.sub(rf"\1{MASK}", text)
        return _AUTHORIZATION.sub(rf"\1 {MASK}", text)


def _may_assign(text: str) -> bool:
    """Return whether a secret's name may be in `text`: cheaper than to search a traceback for the pattern."""
    # Beyond ASCII a pattern that ignores case knows letters that lower() does not.
    lowered = text.lower()
    return not text.isascii() or any(stem in lowered for stem in _STEMS)
