"""Old name of `oncemq.contracts.unit`; importing from it warns; removed in the next release."""

import warnings
from typing import Any

import oncemq.contracts.unit


def __getattr__(name: str) -> Any:
    """Return the attribute of the new module, with a deprecation warning."""
    warnings.warn("oncemq.unit is now oncemq.contracts.unit", DeprecationWarning, stacklevel=2)
    return getattr(oncemq.contracts.unit, name)
