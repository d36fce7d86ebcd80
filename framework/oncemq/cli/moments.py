"""Reads a moment from the command line: a time with its zone, or an age."""

from datetime import UTC, datetime

import click

from oncemq.common.durations import parse_duration


def moment(_context: click.Context, _parameter: click.Parameter, text: str | None) -> datetime | None:
    """Return the moment that an option means; None where it is not given.

    Raises:
        click.BadParameter: it is neither a time nor an age.
    """
    if text is None:
        return None
    try:
        return datetime.now(UTC) - parse_duration(text)
    except ValueError:
        pass
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        found = None
    if found is None or found.tzinfo is None:
        raise click.BadParameter(
            f"{text!r} is neither a time with a zone (2026-01-31T08:00:00Z) nor an age (2h)"
        )
    return found
