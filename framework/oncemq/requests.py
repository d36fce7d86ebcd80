"""Old name of `oncemq.idempotent_requests`; importing from it warns; removed in the next release."""

import warnings
from typing import Any

import oncemq.idempotent_requests


def __getattr__(name: str) -> Any:
    """Return the attribute of the new module, with a deprecation warning."""
    warnings.warn("oncemq.requests is now oncemq.idempotent_requests", DeprecationWarning, stacklevel=2)
    return getattr(oncemq.idempotent_requests, name)
