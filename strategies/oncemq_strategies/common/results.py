"""Handler results as JSON, kept for duplicates."""

from typing import Any, Final

from pydantic_core import PydanticSerializationError, to_json

MAX_RESULT_BYTES: Final = 64 * 1024


def stored(result: Any) -> str:
    """Return the JSON of `result`.

    Raises:
        ValueError: it cannot be written as JSON, or is too long.
    """
    try:
        text = to_json(result, inf_nan_mode="constants").decode()
    except (PydanticSerializationError, UnicodeError) as error:
        raise ValueError(str(error)) from None
    if len(text) > MAX_RESULT_BYTES:
        raise ValueError(f"it has {len(text)} bytes as JSON, the most is {MAX_RESULT_BYTES}")
    return text


def stored_or_none(result: Any) -> str | None:
    """Return the JSON of `result`, or None if there is none or it cannot be kept."""
    try:
        return stored(result) if result is not None else None
    except ValueError:
        return None
