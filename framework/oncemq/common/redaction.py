"""Redacts secrets: credentials and row values in any text, and control characters that forge log lines."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import quote, quote_plus

MASK = "***"

MIN_KNOWN_SECRET = 6
"""Shorter known secrets are masked only by their position (URL, field): `guest` would mask half the log."""

_NAMES = r"pass(?:word|wd|phrase)|pwd|secret|token|api[_-]?key|access[_-]?key|private[_-]?key|history[_-]?key|credential|cookie"
_STEMS = ("pass", "pwd", "secret", "token", "api", "access", "private", "history", "credential", "cookie")
"""Every pattern of `_NAMES` contains at least one of these."""
_SCHEMES = ("bearer", "basic", "negotiate", "ntlm", "digest")

_SECRET_NAME = re.compile(rf"(?:{_NAMES}|authorization|^pass$)", re.IGNORECASE)
# All repetitions are bounded, so that a hostile text costs no more than a normal one.
_QUOTED = r"""\\{0,3}"(?:[^"\\]|\\[^"]){0,500}\\{0,3}"|\\{0,3}'(?:[^'\\]|\\[^']){0,500}\\{0,3}'"""
# Up to the last @ of the word: a password that is not percent-encoded may contain any other character.
_USERINFO = re.compile(r"(://[^\s/:@]{0,200}:)\S{0,500}@")
_LOGIN = re.compile(
    r"""(\b(?:dsn|conninfo|connection[_-]?string|connect|login)["']?\s{0,5}[=:]\s{0,5}["']?[^\s/:@"']{1,200}[/:])[^\s"']{1,500}@""",
    re.IGNORECASE,
)
_ASSIGNMENT = re.compile(
    rf"""((?:{_NAMES})[\w-]{{0,30}}\\{{0,3}}["']?\s{{0,5}}[=:,]\s{{0,5}})({_QUOTED})"""
    rf"""|((?:{_NAMES})[\w-]{{0,30}}["']?\s{{0,5}}[=:]\s{{0,5}})[^\s,;&)\]}}]+""",
    re.IGNORECASE,
)
_HEADER = re.compile(rf"(\bx-[\w-]{{0,60}}(?:{_NAMES})[\w-]{{0,30}}\s{{1,5}})[^\s,;&)\]}}=:]+", re.IGNORECASE)
# A header's value may have several parts, so an unquoted value ends at the end of its line.
_AUTHORIZATION = re.compile(
    rf"""(\bauthorization\\{{0,3}}["']?\s{{0,5}}[=:,]\s{{0,5}})({_QUOTED}|[^\r\n]{{1,2000}})""", re.IGNORECASE
)
_SCHEME = re.compile(
    r"\b(bearer|basic|negotiate|ntlm)\s{1,5}[\w+/=.~-]{8,}|\b(digest)\s{1,5}\w{1,30}=[^\r\n]{1,2000}",
    re.IGNORECASE,
)
_DETAIL = re.compile(
    r"(\bDETAIL:[ \t]{0,5})(?!\*\*\*)(?:(?!\n(?:HINT|CONTEXT|QUERY|WHERE|STATEMENT|\[SQL|\(Background|\nThe above|\nDuring)).){1,20000}",
    re.DOTALL,
)
_ENTRY = re.compile(
    r"(\bDuplicate entry |\bIncorrect [\w ]{1,30} value: |\bTruncated incorrect \w{1,30} value: )'[^\n]{0,5000}'(?= for | at |\"|\)|$)"
)


class _Pattern(NamedTuple):
    """Pattern of one kind of secret.

    Args:
        stems: every match contains at least one of these, in lower case.
        found: the pattern.
        shown: the replacement.
    """

    stems: tuple[str, ...]
    found: re.Pattern[str]
    shown: str


PATTERNS = (
    _Pattern(("://",), _USERINFO, rf"\1{MASK}@"),
    _Pattern(("dsn", "conn", "login"), _LOGIN, rf"\1{MASK}@"),
    _Pattern(("authorization",), _AUTHORIZATION, rf"\1{MASK}"),
    _Pattern(_STEMS, _ASSIGNMENT, rf"\1\3{MASK}"),
    _Pattern(_STEMS, _HEADER, rf"\1{MASK}"),
    _Pattern(_SCHEMES, _SCHEME, rf"\1\2 {MASK}"),
)
"""Credentials at their usual positions."""

ROW_VALUES = (
    _Pattern(("detail:",), _DETAIL, rf"\1{MASK}"),
    _Pattern(("entry", "incorrect"), _ENTRY, rf"\1'{MASK}'"),
)
"""Values of rows, as databases quote them in their errors."""


@dataclass(frozen=True, slots=True)
class MaskedText:
    """The text of a file without secrets.

    Args:
        file: its name.
        text: the text.
        exact: it is the file's text but for what is masked; False where more may be masked, so that it cannot be filled in again.
    """

    file: str
    text: str
    exact: bool


@lru_cache(maxsize=1024)
def is_secret_name(name: str) -> bool:
    """Return whether a field of this name holds a secret."""
    return _SECRET_NAME.search(name) is not None


def escape(text: str) -> str:
    r"""Return `text` on one line: unprintable characters, ANSI and bidi codes included, become like `\n` or `\x1b`."""
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode("ascii")
        for character in text
    )


class Redactor:
    """Masks credentials in texts: in URLs and assignments, and known secrets anywhere.

    Row values, which databases quote in their errors (`Key (card)=(4111…) already exists`), are masked, too.

    Args:
        secrets: values known to be secret, such as those of `${VAR}` in a password; also found percent-encoded.
        row_values: whether row values may be shown.
    """

    def __init__(self, secrets: Iterable[str] = (), *, row_values: bool = False) -> None:
        forms = {
            form
            for secret in secrets
            if len(secret) >= MIN_KNOWN_SECRET
            for form in (secret, quote(secret, safe=""), quote_plus(secret), repr(secret)[1:-1])
        }
        self._forms = sorted(forms, key=len, reverse=True)
        self._patterns = PATTERNS if row_values else (*PATTERNS, *ROW_VALUES)
        self._known = re.compile("|".join(map(re.escape, self._forms)))

    def __repr__(self) -> str:
        return "<Redactor>"

    def __call__(self, text: str) -> str:
        """Return `text` without credentials."""
        if _holds(text, self._forms):
            text = self._known.sub(MASK, text)
        # Outside ASCII, a case-insensitive pattern matches letters that lower() does not map.
        lowered = text.lower() if text.isascii() else None
        for pattern in self._patterns:
            if lowered is None or _holds(lowered, pattern.stems):
                text = pattern.found.sub(pattern.shown, text)
        return text


def _holds(text: str, parts: Iterable[str]) -> bool:
    """Return whether any of `parts` is in `text`: far cheaper than a pattern search over a traceback."""
    for part in parts:  # noqa: SIM110 - any() with a generator takes three times as long
        if part in text:
            return True
    return False
