"""The suites' tests that have something to show for the chain they are given."""

import pytest


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the tests about parking for chains that park nothing."""
    idle = {item for item in items if _parks_nothing(item)}
    if idle:
        config.hook.pytest_deselected(items=idle)
        items[:] = [item for item in items if item not in idle]


def _parks_nothing(item: pytest.Item) -> bool:
    function, case = getattr(item, "function", None), getattr(item, "callspec", None)
    if case is None or "chain" not in case.params or not function.__qualname__.startswith("Parking."):
        return False
    return not case.params["chain"].parks
