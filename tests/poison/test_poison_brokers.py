"""The same on the real brokers, which must carry each error's text through a retry and into a dead letter.

Small here: those ways whose text or class is hard to carry; `make poison` runs all that Python has.
"""

import os
from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy import Engine

from oncemq.contracts.adapter import Adapter
from oncemq.observe import logs
from poison.crowd import Crowd
from poison.ways import HARD_TO_CARRY, ON_ROCKETMQ, PYTHON
from support.brokers import kafka, rabbitmq, rocketmq
from support.database.databases import database, engine

__all__ = ["database", "engine"]

WHOLE = bool(os.environ.get("ONCEMQ_POISON"))
NEIGHBOURS = 300 if WHOLE else 12
CHOSEN = list(PYTHON) if WHOLE else HARD_TO_CARRY
CROWDS = 16 if WHOLE else 1

pytestmark = pytest.mark.timeout(600 if WHOLE else 120)


@pytest.fixture
def make_adapter(request: pytest.FixtureRequest, broker: str) -> Any:
    """Return what makes adapters of this broker, and the options of a topic there."""
    url = request.getfixturevalue(f"{broker}_url")
    if broker == "rabbitmq":
        return lambda: rabbitmq.adapter_on(url), {}
    namespace = f"t{uuid4().hex[:10]}"
    if broker == "kafka":
        return lambda: kafka.adapter_on(url, **kafka.QUICK, namespace=f"{namespace}."), {"partitions": 2}
    return lambda: rocketmq.adapter_on(url, namespace=namespace), {"queues": 2}


@pytest.fixture
def at_end() -> Iterator[list[Adapter]]:
    """Adapters that are closed at the end."""
    adapters: list[Adapter] = []
    yield adapters
    for adapter in adapters:
        adapter.close(grace=timedelta(0))
    logs.configure("warning", "console")


@pytest.mark.server
@pytest.mark.parametrize("database", ["postgresql"], indirect=True)
@pytest.mark.parametrize(
    "broker",
    ["rabbitmq", "rocketmq", "kafka"],
)
@pytest.mark.parametrize("limit", [1, 500], ids=["limit-1", "large"])
@pytest.mark.parametrize("place", range(3) if WHOLE else [0])
@pytest.mark.parametrize("number", range(CROWDS))
def test_the_same_on_every_broker(
    engine: Engine,
    make_adapter: Any,
    at_end: list[Adapter],
    broker: str,
    number: int,
    place: int,
    limit: int,
) -> None:
    """All neighbours are applied promptly, once; the dead letter carries the true error."""
    make, options = make_adapter
    ways = CHOSEN[number::CROWDS]
    if broker == "rocketmq" and number == 0:
        ways = [*ways, *ON_ROCKETMQ]
    crowd = Crowd(make, engine, ways, place + number, limit, NEIGHBOURS, options)
    at_end.append(crowd.sender)
    crowd.judge()
