"""A handler that exceeded its soft limit is charged, whatever it does about it."""

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from oncemq_strategies.unique_key.strategy import UniqueKey
from support.effects import TAKE_THE_TAKEN, effects, give
from support.units import UnitBench, orders


def _hide(session: Session) -> None:
    try:
        session.execute(TAKE_THE_TAKEN)
    except Exception:
        return


ENDINGS: dict[str, Callable[[Session], Any]] = {
    "returns": lambda session: None,
    "is cancelled": lambda session: session.execute(TAKE_THE_TAKEN),
    "is cancelled and hides it": _hide,
}


@pytest.mark.parametrize("ending", ENDINGS.values(), ids=ENDINGS)
def test_an_overdue_handler_is_charged_alone(engine: Engine, ending: Callable[[Session], Any]) -> None:
    """The late message costs an attempt and leaves nothing; its neighbours take effect."""

    def handler(order: dict[str, Any], session: Session) -> None:
        give(session, order)
        if order["id"] == "late":
            bench.slot.overdue = bench.slot.started
            ending(session)

    bench = UnitBench(engine, handler, UniqueKey)
    assert bench.run(*orders("a", "late", "b")) == ["applied", "retry", "applied"]
    assert bench.errors() == ["TimeLimitExceeded"]
    assert effects(engine) == ["a", "b"]
