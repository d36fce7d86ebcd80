"""Old name of `oncemq.contracts.strategy`; it warns, and goes with the next release."""

import warnings
from typing import Any

import oncemq.contracts.strategy


def __getattr__(name: str) -> Any:
    """Return what the new module has by this name, and warn of the old one."""
    warnings.warn("oncemq.strategy is now oncemq.contracts.strategy", DeprecationWarning, stacklevel=2)
    return getattr(oncemq.contracts.strategy, name)
