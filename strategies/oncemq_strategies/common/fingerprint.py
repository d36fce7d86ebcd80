"""Digest of chosen fields: equal for equal content, regardless of order, spacing or spelling of numbers."""

import json
from collections.abc import Callable, Sequence
from hashlib import blake2b
from typing import Any

from oncemq.contracts.unit import Item
from oncemq.message.expressions import Expression
from oncemq_strategies.common.options import Options

Fingerprint = Callable[[Item], str]


def fingerprint_of(fields: Sequence[Expression]) -> Fingerprint:
    """Return a function that gives an item's fingerprint; a missing field counts as null."""

    def fingerprint(item: Item) -> str:
        message, payload = item.delivery.message, item.payload
        values = [_canonical(field(message, payload)) for field in fields]
        return blake2b(_ENCODER.encode(values).encode(errors="surrogatepass"), digest_size=16).hexdigest()

    return fingerprint


def fingerprint_option(given: Options) -> Fingerprint | None:
    """Return the fingerprint of the option `fingerprint`, a list of expressions; None if not given."""
    if not given.has("fingerprint"):
        return None
    return fingerprint_of([given.expression("fingerprint", field) for field in given.names("fingerprint")])


def _canonical(value: Any) -> Any:
    """Return `value` with 10.0 as 10: producers serialize numbers either way."""
    if type(value) is float and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        return {str(name): _canonical(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_canonical(part) for part in value]
    return value


_ENCODER = json.JSONEncoder(ensure_ascii=False, sort_keys=True, separators=(",", ":"), default=str)
