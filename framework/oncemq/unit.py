"""Old name of `oncemq.contracts.unit`; it warns, and goes with the next release."""

import warnings
from typing import Any

import oncemq.contracts.unit


def __getattr__(name: str) -> Any:
    """Return what the new module has by this name, and warn of the old one."""
    warnings.warn("oncemq.unit is now oncemq.contracts.unit", DeprecationWarning, stacklevel=2)
    return getattr(oncemq.contracts.unit, name)
