"""Publishers to the topics of an app in YAML, for use outside of handlers."""

import warnings
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from oncemq.app import for_publishing
from oncemq.config import load
from oncemq.engine.plan import AppPlan
from oncemq.engine.publishers.app_publisher import AppPublisher
from oncemq.engine.publishers.async_app_publisher import AsyncAppPublisher


def open_publisher(*files: str | Path) -> AppPublisher:
    """Return a publisher to the topics of an app in YAML, for a web request, a script or a scheduled job.

    No handler is imported. One per process is enough, for all threads; open it by `with`, or call `close()`.

    Args:
        files: the app, and overlay files; `app.yaml` by default.

    Raises:
        ConfigError: by `with` or the first message, if the app cannot work; carries every problem.
    """
    return AppPublisher(partial(_load_files, files))


def open_async_publisher(*files: str | Path) -> AsyncAppPublisher:
    """Return the same for coroutines; open it by `async with`, or as the lifespan of a FastAPI application.

    Args:
        files: the app, and overlay files; `app.yaml` by default.
    """
    return AsyncAppPublisher(partial(_load_files, files))


def publisher_of(*files: str | Path) -> AppPublisher:
    """Return `open_publisher(*files)`; deprecated, removed in the next release."""
    warnings.warn("oncemq.publisher_of is now oncemq.open_publisher", DeprecationWarning, stacklevel=2)
    return open_publisher(*files)


def _load_files(files: Sequence[str | Path]) -> tuple[AppPlan, Callable[[str], str]]:
    return for_publishing(load([Path(file) for file in files or ("app.yaml",)], consumers=False))
