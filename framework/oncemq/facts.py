"""Old name of `oncemq.contracts.checks`; it warns, and goes with the next release."""

import warnings
from typing import Any

import oncemq.contracts.checks


def __getattr__(name: str) -> Any:
    """Return what the new module has by this name, and warn of the old one."""
    warnings.warn("oncemq.facts is now oncemq.contracts.checks", DeprecationWarning, stacklevel=2)
    return getattr(oncemq.contracts.checks, name)
