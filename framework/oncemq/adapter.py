"""Old name of `oncemq.contracts.adapter`; importing from it warns; removed in the next release."""

import warnings
from typing import Any

import oncemq.contracts.adapter

_RENAMED = {"Later": "RetryRequest", "Dead": "DeadLetterRequest", "Burial": "ParkedDeadLetter"}


def __getattr__(name: str) -> Any:
    """Return the attribute of the new module, with a deprecation warning."""
    warnings.warn("oncemq.adapter is now oncemq.contracts.adapter", DeprecationWarning, stacklevel=2)
    return getattr(oncemq.contracts.adapter, _RENAMED.get(name, name))
