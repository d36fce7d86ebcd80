"""Pytest plugin: the fixture `oncemq_app`, an app under the test kit for the duration of a test."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from oncemq.testing.kit.app import TestApp
    from oncemq.testing.kit.databases import Tables


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options and settings of the fixture."""
    group = parser.getgroup("oncemq")
    group.addoption(
        "--oncemq-app", metavar="FILE", help="the app of the fixture oncemq_app; app.yaml by default"
    )
    group.addoption(
        "--oncemq-real",
        action="store_true",
        help="run the fixture oncemq_app on the brokers and databases that the app declares",
    )
    parser.addini("oncemq_app", "the app of the fixture oncemq_app", default="app.yaml")


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marker."""
    config.addinivalue_line(
        "markers",
        "oncemq(*files, **options): the app of the fixture oncemq_app, and the arguments of oncemq.testing.TestApp",
    )


@pytest.fixture
def oncemq_tables() -> "Tables | None":
    """Return the tables that handlers use; override it: `return Base.metadata`."""
    return None


@pytest.fixture
def oncemq_idempotency_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let functions under `@idempotent` run each time, without a ledger, until the test ends."""
    monkeypatch.setenv("ONCEMQ_IDEMPOTENCY", "off")


@pytest.fixture
def oncemq_app(request: pytest.FixtureRequest, oncemq_tables: "Tables | None") -> "Iterator[TestApp]":
    """Return a `TestApp` that runs until the test ends.

    Its file is that of the marker `oncemq`, of the option `--oncemq-app`, or of the setting `oncemq_app`; a relative
    path begins at pytest's root folder.
    """
    # Here and not above: pytest loads this plugin in every run, also of projects that use none of it.
    from oncemq.app import App  # noqa: PLC0415
    from oncemq.testing.kit.app import TestApp  # noqa: PLC0415

    config, marker = request.config, request.node.get_closest_marker("oncemq")
    options: dict[str, Any] = {"tables": oncemq_tables, "real": config.getoption("--oncemq-real")}
    files: tuple[Any, ...] = ()
    if marker is not None:
        files, options = marker.args, options | marker.kwargs
    if not files:
        files = (config.getoption("--oncemq-app") or config.getini("oncemq_app"),)
    first, *overlays = files
    declared = first if isinstance(first, App) else config.rootpath / first
    with TestApp(declared, *(config.rootpath / overlay for overlay in overlays), **options) as app:
        yield app
