"""Parameters of addresses and forms, each bounded; what is wrong is said."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from urllib.parse import urlencode

from oncemq.errors import OnceMQError
from oncemq.operate.dead_letters import Filter

MAX_TEXT = 1024


class WrongParameter(OnceMQError):
    """A parameter cannot be used; the text says which and why."""


def text(given: Mapping[str, str], name: str) -> str:
    """Return a text; empty where there is none."""
    found = given.get(name, "").strip()
    if len(found) > MAX_TEXT:
        raise WrongParameter(f"{name} is longer than {MAX_TEXT} characters")
    return found


def number(given: Mapping[str, str], name: str, default: int, most: int) -> int:
    """Return a whole number from 1, or from the default if that is less."""
    found = text(given, name)
    if not found:
        return default
    least = min(default, 1)
    if not (found.isascii() and found.isdigit() and least <= int(found[:12]) <= most):
        raise WrongParameter(f"{name} should be a whole number from {least} to {most:,}")
    return int(found)


def moment(given: Mapping[str, str], name: str) -> datetime | None:
    """Return a time, UTC unless it says otherwise; None where there is none."""
    found = text(given, name)
    if not found:
        return None
    try:
        at = datetime.fromisoformat(found)
    except ValueError:
        raise WrongParameter(f"{name} should be a time like 2026-11-26T14:00") from None
    return at if at.tzinfo is not None else at.replace(tzinfo=UTC)


def choice(given: Mapping[str, str], name: str, among: Sequence[str]) -> str | None:
    """Return one of the values that there are; None where none is given."""
    found = text(given, name)
    if found and found not in among:
        raise WrongParameter(f"there is no {name} {found!r}")
    return found or None


def letter_filter(given: Mapping[str, str]) -> Filter:
    """Return the selection of dead letters that a page or a form names."""
    ids = [each for each in given.get("id", "").split("\n") if each]
    if any(len(each) > MAX_TEXT for each in ids):
        raise WrongParameter(f"an id is longer than {MAX_TEXT} characters")
    return Filter(
        frozenset(ids),
        text(given, "key") or None,
        text(given, "reason") or None,
        text(given, "error") or None,
        moment(given, "since"),
        moment(given, "until"),
    )


def query(given: Mapping[str, object]) -> str:
    """Return parameters for an address; those without a value are left out."""
    return urlencode({name: value for name, value in given.items() if value not in (None, "", 1)})
