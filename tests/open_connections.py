"""Names the test that made a connection to PostgreSQL which is garbage-collected while open.

The warning is an error, and fails whichever test runs when the collector does. Connections of a test that has failed are
left out: it did not come to where it closes them, and its own failure is the news.
"""

import os
import traceback
from collections.abc import Callable, Container, Generator
from contextlib import suppress
from inspect import signature
from typing import Any
from warnings import warn

import pytest

_OWN_FRAMES = 8
"""Of the stack that made a connection: the pool, the engine, and what asked it."""
_FAILED = pytest.StashKey[set[str]]()


def pytest_configure(config: pytest.Config) -> None:
    """Have connections remember where they were made, where the driver is installed."""
    failed = config.stash[_FAILED] = set()
    with suppress(ModuleNotFoundError):
        from psycopg import BaseConnection  # noqa: PLC0415

        config.add_cleanup(remember_makers(BaseConnection, failed))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Note a test that fails."""
    report = yield
    if report.failed:
        item.config.stash[_FAILED].add(item.nodeid)
    return report


def remember_makers(kind: Any, failed: Container[str] = ()) -> Callable[[], None]:
    """Have connections of this class say in their warning which test made them.

    Args:
        kind: the class.
        failed: tests whose connections say nothing.

    Returns:
        What ends that.
    """
    made, deleted = kind.__init__, kind.__del__
    if len(signature(deleted).parameters) < 2:
        # An old driver, which does not let its caller choose how it warns.
        return _nothing

    def make(self: Any, *arguments: Any, **options: Any) -> None:
        made(self, *arguments, **options)
        self.made_by = os.environ.get("PYTEST_CURRENT_TEST", "no test"), traceback.extract_stack()

    def delete(self: Any) -> None:
        if _test_of(self) in failed:
            return
        deleted(self, lambda text, category: warn(f"{text} {_maker(self)}", category, stacklevel=2))

    kind.__init__, kind.__del__ = make, delete

    def end() -> None:
        kind.__init__, kind.__del__ = made, deleted

    return end


def _nothing() -> None:
    """Do nothing."""


def _test_of(connection: Any) -> str:
    test, _ = getattr(connection, "made_by", ("", ()))
    return test.rpartition(" (")[0]


def _maker(connection: Any) -> str:
    test, stack = getattr(connection, "made_by", ("unknown", ()))
    frames = [frame for frame in stack if "site-packages" not in frame.filename][-_OWN_FRAMES:]
    return f"It was made in {test}:\n{''.join(traceback.format_list(frames))}"
