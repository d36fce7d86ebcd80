"""Test kit for handlers, and suites, fakes and clocks for tests of adapters and strategies."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from oncemq.testing.kit.app import TestApp
    from oncemq.testing.kit.clock import TestClock
    from oncemq.testing.kit.messages import PublishedMessage
    from oncemq.testing.kit.outcomes import Handling, Outcome, Status

__all__ = ["Handling", "Outcome", "PublishedMessage", "Status", "TestApp", "TestClock"]

_HOMES = {
    "Handling": "oncemq.testing.kit.outcomes",
    "Outcome": "oncemq.testing.kit.outcomes",
    "PublishedMessage": "oncemq.testing.kit.messages",
    "Status": "oncemq.testing.kit.outcomes",
    "TestApp": "oncemq.testing.kit.app",
    "TestClock": "oncemq.testing.kit.clock",
}


def __getattr__(name: str) -> Any:
    """Import a public name on first use: pytest loads this package's plugin in every run."""
    if name not in _HOMES:
        raise AttributeError(f"module 'oncemq.testing' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    """Return the public names, for completion."""
    return sorted(__all__)
