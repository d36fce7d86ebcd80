"""Facts of an ordinary consumer, about which nothing is to be said."""

from datetime import timedelta
from typing import Any

from oncemq.contracts.checks import ConsumerFacts, Effects


def facts_of(topic: str, group: str, **changed: Any) -> ConsumerFacts:
    """Return the facts of a consumer of this topic and group, with some of them changed."""
    usual: dict[str, Any] = {
        "app": "tests", "name": "points", "topic": topic, "group": group, "effects": Effects.DATABASE,
        "broker": "broker", "strategies": ("unique_key",), "identity": (), "has_version": False,
        "keep": timedelta(days=7), "retry_horizon": timedelta(minutes=10), "attempts": 6, "is_async": False,
        "dialect": "postgresql", "workers": 1, "in_flight": 1000, "unit_time": timedelta(milliseconds=50),
        "soft_limit": None, "hard_limit": None, "longest_pause": timedelta(minutes=5),
    }  # fmt: skip
    return ConsumerFacts(**{**usual, **changed})
