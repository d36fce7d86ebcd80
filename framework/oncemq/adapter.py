"""Old name of `oncemq.contracts.adapter`; it warns, and goes with the next release."""

import warnings
from typing import Any

import oncemq.contracts.adapter

_RENAMED = {"Later": "RetryRequest", "Dead": "DeadLetterRequest", "Burial": "ParkedDeadLetter"}


def __getattr__(name: str) -> Any:
    """Return what the new module has by this name, and warn of the old one."""
    warnings.warn("oncemq.adapter is now oncemq.contracts.adapter", DeprecationWarning, stacklevel=2)
    return getattr(oncemq.contracts.adapter, _RENAMED.get(name, name))
