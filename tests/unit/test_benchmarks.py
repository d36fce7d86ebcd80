"""What the benchmarks build from the engine's own parts still fits together."""

import pytest
from benchmarks import engine_cost


@pytest.mark.parametrize("kind", ["direct", "unit"])
def test_the_engine_is_measured_without_a_broker(kind: str) -> None:
    """Every stage of a message's way is found and has a cost."""
    costs = engine_cost.run(kind, engine_cost.WINDOW)
    assert costs["engine_us"] > 0
    assert set(costs) >= {"decode_us", "envelope_us", "queue_us", "run_us", "settle_us"}
