"""Old name of `oncemq.contracts.checks`; importing from it warns; removed in the next release."""

import warnings
from typing import Any

import oncemq.contracts.checks


def __getattr__(name: str) -> Any:
    """Return the attribute of the new module, with a deprecation warning."""
    warnings.warn("oncemq.facts is now oncemq.contracts.checks", DeprecationWarning, stacklevel=2)
    return getattr(oncemq.contracts.checks, name)
