"""Old name of `oncemq.idempotent_requests`; it warns, and goes with the next release."""

import warnings
from typing import Any

import oncemq.idempotent_requests


def __getattr__(name: str) -> Any:
    """Return what the new module has by this name, and warn of the old one."""
    warnings.warn("oncemq.requests is now oncemq.idempotent_requests", DeprecationWarning, stacklevel=2)
    return getattr(oncemq.idempotent_requests, name)
