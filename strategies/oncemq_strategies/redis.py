"""Old name of `oncemq_strategies.redisson`; importing from it warns, and it is removed in the next release."""

import warnings
from typing import Any

import oncemq_strategies.redisson


def __getattr__(name: str) -> Any:
    """Return the new module's attribute of this name, with a warning."""
    warnings.warn(
        "oncemq_strategies.redis is now oncemq_strategies.redisson", DeprecationWarning, stacklevel=2
    )
    return getattr(oncemq_strategies.redisson, name)
