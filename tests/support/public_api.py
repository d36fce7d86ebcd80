"""What users may import, in one list, and how it is called; everything else of the packages is private.

`python -m support.public_api` in the folder `tests` prints the signatures that `tests/unit/public_api.txt` holds.
"""

import inspect
import re
import sys
from collections.abc import Iterator
from importlib import import_module
from typing import Any

WITH_ALL = (
    "oncemq",
    "oncemq.ids",
    "oncemq.idempotent_requests",
    "oncemq.testing",
    "oncemq.testing.adapter_suite",
    "oncemq.testing.strategy_suite",
    "oncemq_adapters.rocketmq_client",
)
"""Modules that say themselves what is public: their `__all__`."""

NAMES = {
    "oncemq.alembic": ["include_name", "upgrade"],
    "oncemq.contracts.adapter": [
        *(
            "CONFIRMED",
            "Adapter",
            "AdapterScope",
            "ParkedDeadLetter",
            "Confirmed",
            "ConsumerHealth",
            "DeadLetterRequest",
            "DeadLetter",
        ),
        *("RetryRequest", "Refused", "SettleFailed", "Sink", "Subscription"),
    ],
    "oncemq.contracts.capabilities": ["Capabilities", "Order"],
    "oncemq.contracts.checks": ["ConsumerFacts", "Effects", "Problem", "Severity"],
    "oncemq.message.envelope": ["BrokerMetadata", "Delivery", "Envelope", "Message", "OutgoingMessage"],
    "oncemq.contracts.strategy": [
        *("HeldLock", "HeldLocks", "Reconciled", "Scope", "Strategy", "Traits", "UnitKind", "UpkeepTask"),
    ],
    "oncemq.contracts.unit": ["Item", "Run", "Unit"],
    "oncemq.contracts.verdict": ["PROCEED", "Culprits", "Verdict"],
}
"""What writers of adapters and strategies may import besides."""


def public() -> dict[str, list[str]]:
    """Return the public names by module."""
    found = {module: sorted(import_module(module).__all__) for module in WITH_ALL}
    return {**found, **NAMES}


def signatures() -> Iterator[str]:
    """Yield one line for each public callable and method of what users import, sorted by module."""
    for module in (*WITH_ALL, "oncemq.alembic"):
        for name in public()[module]:
            found = getattr(import_module(module), name)
            if getattr(found, "__module__", "").startswith("oncemq"):
                yield from _lines(f"{module}.{name}", found)


def members(found: type) -> Iterator[tuple[str, Any]]:
    """Yield the public methods and properties that a class of ours defines."""
    for base in found.__mro__:
        if not base.__module__.startswith("oncemq"):
            continue
        for name, value in vars(base).items():
            if not name.startswith("_") and (callable(value) or isinstance(value, property | classmethod)):
                yield name, value


def _lines(path: str, found: Any) -> Iterator[str]:
    if not callable(found):
        yield path
        return
    yield f"{path}{_signature(found)}"
    if inspect.isclass(found) and "_suite." not in path:
        for name, value in sorted(dict(reversed(list(members(found)))).items()):
            if isinstance(value, property):
                yield f"{path}.{name}"
            elif callable(getattr(found, name)):
                yield f"{path}.{name}{_signature(getattr(found, name))}"


def _signature(found: Any) -> str:
    try:
        text = str(inspect.signature(found))
    except (TypeError, ValueError):
        return ""
    # Where a type lives, and what differs from run to run, is no part of the promise.
    text = re.sub(r"<class '([\w.]+)'>", r"\1", re.sub(r" at 0x[0-9a-f]+", "", text))
    text = re.sub(r"frozenset\(\{([^}]*)\}\)", lambda found: _sorted(found[1]), text)
    return re.sub(r"\b(?:[a-z_]\w*\.)+(?=[A-Z])", "", text)


def _sorted(elements: str) -> str:
    return f"frozenset({{{', '.join(sorted(elements.split(', ')))}}})"


if __name__ == "__main__":
    sys.stdout.write("\n".join(signatures()) + "\n")
