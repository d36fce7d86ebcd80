"""Old name of `oncemq.contracts.strategy`; importing from it warns; removed in the next release."""

import warnings
from typing import Any

import oncemq.contracts.strategy


def __getattr__(name: str) -> Any:
    """Return the attribute of the new module, with a deprecation warning."""
    warnings.warn("oncemq.strategy is now oncemq.contracts.strategy", DeprecationWarning, stacklevel=2)
    return getattr(oncemq.contracts.strategy, name)
