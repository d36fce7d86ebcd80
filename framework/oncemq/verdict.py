"""Old name of `oncemq.contracts.verdict`; importing from it warns; removed in the next release."""

import warnings
from typing import Any

import oncemq.contracts.verdict


def __getattr__(name: str) -> Any:
    """Return the attribute of the new module, with a deprecation warning."""
    warnings.warn("oncemq.verdict is now oncemq.contracts.verdict", DeprecationWarning, stacklevel=2)
    return getattr(oncemq.contracts.verdict, name)
