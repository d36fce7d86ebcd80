"""A password that must never be seen, and everything in which someone might see it."""

import io
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal
from urllib.parse import quote

from oncemq.observe import logs

STEM = "C4n4ry7Q9z"
"""What no output may hold; part of every password here, and of each of its encodings."""

PASSWORD = STEM
HARD = f"{STEM}/@:%"
"""A password that a URL cannot hold as it is."""
ENCODED = quote(HARD, safe="")


def told_by(error: BaseException) -> str:
    """Return everything that an error can say: its text, its repr and its traceback, with all its causes."""
    said = ["".join(traceback.format_exception(error))]
    todo: list[BaseException | None] = [error]
    while todo:
        item = todo.pop()
        if item is None:
            continue
        said += [str(item), repr(item), repr(item.args), *getattr(item, "__notes__", ())]
        said += [repr(problem) for problem in getattr(item, "problems", ())]
        todo += [item.__cause__, item.__context__]
        if isinstance(item, BaseExceptionGroup):
            todo += item.exceptions
    return "\n".join(said)


@contextmanager
def logged(style: Literal["console", "json"], secrets: Any = ()) -> Iterator[io.StringIO]:
    """Send every log line of every library, also of those that are quiet otherwise, into the yielded stream."""
    stream = io.StringIO()
    logs.configure("debug", style, stream, secrets)
    for name in logs.QUIET:
        logs.logging.getLogger(name).setLevel("DEBUG")
    try:
        yield stream
    finally:
        logs.configure("warning", "console", secrets=secrets)


def assert_unseen(*outputs: Any) -> None:
    """Check that the password is in none of these, neither in their text nor in their repr."""
    for output in outputs:
        for text in (str(output), repr(output)):
            found = text.find(STEM)
            assert found < 0, f"…{text[max(0, found - 200) : found + 60]}…"
