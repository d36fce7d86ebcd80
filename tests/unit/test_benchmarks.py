"""What the benchmarks build from the engine's own parts still fits together."""

from collections import Counter
from importlib.metadata import entry_points

import pytest
from benchmarks import engine_cost, guarantees, look_ups
from benchmarks.stage import load
from benchmarks.stage.servers import Servers
from sqlalchemy import create_engine


@pytest.mark.parametrize("kind", ["direct", "unit"])
def test_the_engine_is_measured_without_a_broker(kind: str) -> None:
    """Every stage of a message's way is found and has a cost."""
    costs = engine_cost.run(kind, engine_cost.WINDOW)
    assert costs["engine_us"] > 0
    assert set(costs) >= {"decode_us", "envelope_us", "queue_us", "run_us", "settle_us"}


@pytest.mark.parametrize(("copies", "times"), [(0.0, {1}), (0.5, {1, 2}), (1.0, {2}), (9.0, {10})])
def test_orders_come_as_often_as_said(copies: float, times: set[int]) -> None:
    """Also more than twice."""
    orders = load.Orders(3000, copies)
    counts = Counter(orders.numbers())
    assert (len(counts), sum(counts.values()), set(counts.values())) == (orders.unique, 3000, times)


def test_every_strategy_has_its_price() -> None:
    """Anyone who adds a strategy adds a line to what each guarantee costs."""
    priced = set[str]()
    for guarantee in guarantees.GUARANTEES.values():
        for part in guarantee.strategy if isinstance(guarantee.strategy, tuple) else (guarantee.strategy,):
            priced |= {part} if isinstance(part, str) else set(part)
    assert priced == {point.name for point in entry_points(group="oncemq.strategies")}


def test_the_filter_in_memory_is_measured_without_a_server() -> None:
    """What is looked up is found as the strategy finds it."""
    nowhere = Servers("", "", None, create_engine("sqlite://"))
    assert look_ups.bloom(nowhere, 0.001)[look_ups.LOOK_UPS] > 0
