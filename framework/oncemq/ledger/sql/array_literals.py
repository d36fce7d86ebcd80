"""Whole columns as PostgreSQL's array literals: drivers take ten times as long to write a list, element by element."""

from collections.abc import Iterable


def of_texts(values: Iterable[str | None]) -> str:
    """Return a literal for `CAST(:name AS text[])`; None is NULL."""
    return "{" + ",".join(["NULL" if value is None else _quoted(value) for value in values]) + "}"


def of_numbers(values: Iterable[int]) -> str:
    """Return a literal for `CAST(:name AS bigint[])`."""
    return "{" + ",".join(map(str, values)) + "}"


def of_bytes(values: Iterable[bytes]) -> str:
    """Return a literal for `CAST(:name AS bytea[])`."""
    return "{" + ",".join([f'"\\\\x{value.hex()}"' for value in values]) + "}"


def _quoted(value: str) -> str:
    # Quoted, nothing else has a meaning: no braces, commas, spaces, and no word NULL.
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
