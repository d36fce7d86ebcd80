"""Old name of `oncemq.contracts.capabilities`; importing from it warns; removed in the next release."""

import warnings
from typing import Any

import oncemq.contracts.capabilities


def __getattr__(name: str) -> Any:
    """Return the attribute of the new module, with a deprecation warning."""
    warnings.warn(
        "oncemq.capabilities is now oncemq.contracts.capabilities", DeprecationWarning, stacklevel=2
    )
    return getattr(oncemq.contracts.capabilities, name)
