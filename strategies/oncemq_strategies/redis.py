"""Old name of `oncemq_strategies.redisson`; it warns, and goes with the next release."""

import warnings
from typing import Any

import oncemq_strategies.redisson


def __getattr__(name: str) -> Any:
    """Return what the new module has by this name, and warn of the old one."""
    warnings.warn(
        "oncemq_strategies.redis is now oncemq_strategies.redisson", DeprecationWarning, stacklevel=2
    )
    return getattr(oncemq_strategies.redisson, name)
