"""Loads the fixtures that all tests share, and keeps one test's app out of the next one's way."""

import gc
import sys
from collections.abc import Generator, Iterator
from contextlib import suppress

import pytest
import structlog

with suppress(ModuleNotFoundError):  # not in the environments of single clients
    from hypothesis import HealthCheck, settings

    # Beside servers and other tests an example may take any time; how long says nothing about the code.
    settings.register_profile("busy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.load_profile("busy")

pytest_plugins = [
    "support.servers",
    "support.database.with_ledger",
    "selection",
    "support.order",
    "open_connections",
]

APPS_MODULES = ("handlers",)
"""What apps in tests' folders call their modules; Python would give the next app the first one's."""


@pytest.fixture(autouse=True)
def _apps_of_their_own() -> Iterator[None]:
    """Forget the modules and import paths of apps that a test loaded into this process."""
    path = list(sys.path)
    yield
    sys.path[:] = path
    for name in APPS_MODULES:
        sys.modules.pop(name, None)


@pytest.fixture(autouse=True)
def _logging_of_their_own() -> Iterator[None]:
    """Leave structlog as it was found: unconfigured, the framework is quiet.

    `capture_logs` and an app that ran leave it configured; each later failure would be printed with all local variables, which
    takes processor time and, on a busy machine, longer than the pause after which a message is tried again.
    """
    yield
    if structlog.is_configured():
        structlog.reset_defaults()


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Leave what is collected out of garbage collections: a worker holds thousands of tests, which each one would look through."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()
