"""Real order events, each published twice and out of order, count once; no order goes backwards.

ONCEMQ_TEST_ORDERS names a file with the columns of examples/order-lifecycle/orders.csv; without it that one is used.
"""

import os
import random
import shutil
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from oncemq.cli.demo.events import as_networks_do, read_events
from oncemq.cli.demo.tally import tally
from oncemq.config import load
from oncemq.contracts.adapter import Confirmed
from support.apps.warm import WarmProgram
from support.brokers.places import EMBEDDED, POSTGRESQL, Place, make_place

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

EXAMPLE = Path(__file__).parents[2] / "examples" / "order-lifecycle"


@pytest.fixture(params=[EMBEDDED, pytest.param(POSTGRESQL, marks=pytest.mark.server)])
def place(request: pytest.FixtureRequest, tmp_path: Path, fresh: str) -> Iterator[Place]:
    """Where the app runs."""
    yield from make_place(request.param, request, tmp_path, fresh)


def test_every_event_published_twice_and_out_of_order_counts_once(place: Place) -> None:
    """An applied event's second copy is a duplicate, of a late event both copies are stale, nothing else happens."""
    orders = Path(os.environ.get("ONCEMQ_TEST_ORDERS", EXAMPLE / "orders.csv"))
    events = read_events(orders, f"{place.name}-", rounds=1)
    sends = as_networks_do(events, random.Random(3), twice=1.0, window=300)
    folder = place.folder
    text = (EXAMPLE / "app.yaml").read_text().replace("order-events", place.name)
    (folder / "app.yaml").write_text(text.replace("app: order-lifecycle", f"app: {place.name}"))
    shutil.copy(EXAMPLE / "handlers.py", folder)
    program = WarmProgram(folder, place.environment)
    program.succeed("tables", "create")
    assert program.python("handlers.py").returncode == 0

    plan = load([folder / "app.yaml"], environment=place.environment).plan
    adapter, target = plan.adapters["shop"], plan.consumers[0].subscription
    adapter.prepare([target])
    for start in range(0, len(sends), 500):
        part = [event.message() for event in sends[start : start + 500]]
        answers = adapter.publish(target.topic, target.options, part)
        assert all(isinstance(answer, Confirmed) for answer in answers), answers
    adapter.close(grace=timedelta(seconds=5))
    program.succeed("run", "--processes", "2", "--until-idle", "3s", timeout=500)

    assert plan.engine is not None
    counts = tally(plan.engine, place.name, len(sends), {event.identity for event in events})
    plan.engine.dispose()
    sys.stdout.write(f"{counts}\n")  # shown by pytest -rP
    assert counts.holds
    assert counts.delivered == 2 * len(events)
    assert counts.duplicates == counts.applied > 0
    assert counts.stale == 2 * (len(events) - counts.applied) > 0
    assert place.unsettled("track-order") == 0
