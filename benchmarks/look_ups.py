"""How fast `tiered` finds out about a unit's messages before the database is asked."""

import time
from collections.abc import Mapping
from typing import Any
from uuid import uuid4

from benchmarks.locks import url_of
from benchmarks.stage.servers import Servers
from oncemq.redis.client import RedisClient
from oncemq.redis.connect import make_client
from oncemq.testing.scopes import scope_for
from oncemq_strategies.common.processed_records import Known
from oncemq_strategies.tiered.strategy import Tiered

LOOK_UPS = "look_ups_a_second"
_UNIT = 500
_MESSAGES = 100_000


def bloom(_servers: Servers, scale: float) -> dict[str, float]:
    """Return the look-ups a second in the filter in memory alone."""
    return _measured({"bloom": True, "redis": False}, None, scale * 10)


def both(servers: Servers, scale: float) -> dict[str, float]:
    """Return the look-ups a second in the filter, and in Redis for what it may have seen."""
    client = make_client(url_of(servers))
    try:
        return _measured({"bloom": True, "ttl": "5m"}, client, scale)
    finally:
        client.close()


def marks(servers: Servers, scale: float) -> dict[str, float]:
    """Return the look-ups a second in Redis alone."""
    client = make_client(url_of(servers))
    try:
        return _measured({"ttl": "5m"}, client, scale)
    finally:
        client.close()


def _measured(options: Mapping[str, Any], client: RedisClient | None, scale: float) -> dict[str, float]:
    """Every other message is a copy; identities are as long as an order's number and a payment's."""
    tiers = Tiered.build(options, scope_for(f"bench.{uuid4().hex}", redis=client))._tiers
    count = max(_UNIT, round(_MESSAGES * scale / 2))
    applied, new = ([f"order-{number}:{kind}" for number in range(count)] for kind in ("paid", "new"))
    for start in range(0, count, _UNIT):
        tiers.remember(Known(dict.fromkeys(applied[start : start + _UNIT], ""), {}))
    mixed = [identity for pair in zip(applied, new, strict=True) for identity in pair]
    units = [mixed[start : start + _UNIT] for start in range(0, len(mixed), _UNIT)]
    began = time.perf_counter()
    found = sum(len(tiers.look_up(unit)) for unit in units)
    took = time.perf_counter() - began
    if found != (count if client is not None else 0):
        raise RuntimeError(f"{found} of {count} copies were found")
    return {LOOK_UPS: len(mixed) / took}
