"""Old name of `oncemq.contracts.capabilities`; it warns, and goes with the next release."""

import warnings
from typing import Any

import oncemq.contracts.capabilities


def __getattr__(name: str) -> Any:
    """Return what the new module has by this name, and warn of the old one."""
    warnings.warn(
        "oncemq.capabilities is now oncemq.contracts.capabilities", DeprecationWarning, stacklevel=2
    )
    return getattr(oncemq.contracts.capabilities, name)
