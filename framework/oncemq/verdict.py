"""Old name of `oncemq.contracts.verdict`; it warns, and goes with the next release."""

import warnings
from typing import Any

import oncemq.contracts.verdict


def __getattr__(name: str) -> Any:
    """Return what the new module has by this name, and warn of the old one."""
    warnings.warn("oncemq.verdict is now oncemq.contracts.verdict", DeprecationWarning, stacklevel=2)
    return getattr(oncemq.contracts.verdict, name)
