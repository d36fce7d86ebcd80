"""The demo's steps: publish, start, kill, wait, count."""

import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import urlsplit
from uuid import uuid4

from sqlalchemy import Engine

from oncemq.cli.demo.events import Event, as_networks_do, read_events
from oncemq.cli.demo.stage import Stage, example_folder
from oncemq.cli.demo.tally import Tally, progress, tally
from oncemq.config.load import load
from oncemq.contracts.adapter import Refused, Subscription
from oncemq.engine.plan import AppPlan
from oncemq.errors import OnceMQError
from oncemq.ledger import schema
from oncemq.ledger.database.probe import prove

_TWICE = 0.1
_WINDOW = 200
_KILL_AT = 0.4
_PUBLISH_TOGETHER = 500
_LOOK_EVERY = 0.1
_STUCK_AFTER = 60.0
_MORE = 2
"""Restarts of the app before missing events count as lost."""

Tell = Callable[[str, int, int], None]
"""Receives (current step, done, total)."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Options of the demo.

    Args:
        broker: URL; empty = embedded.
        database: URL; empty = SQLite.
        orders: a CSV file; None = the shipped file.
        rounds: how often the file's orders are repeated.
        processes: worker processes.
    """

    broker: str
    database: str
    orders: Path | None
    rounds: int
    processes: int


@dataclass(frozen=True, slots=True)
class Result:
    """Result of the demo.

    Args:
        tally: the counted effects.
        killed: the process id of the worker that was killed; None if none was caught in time.
        seconds: from the first effect to the last.
        log: the last lines that the app printed, if the promise was broken.
    """

    tally: Tally
    killed: int | None
    seconds: float
    log: str


def play(settings: Settings, tell: Tell) -> Result:
    """Run the demo in a temporary folder.

    Raises:
        OnceMQError: a broker or database cannot be used, or the app does not end.
    """
    prefix = f"{uuid4().hex[:8]}-"
    events = read_events(settings.orders or example_folder() / "orders.csv", prefix, settings.rounds)
    sent = as_networks_do(events, random.Random(7), twice=_TWICE, window=_WINDOW)  # noqa: S311 - a repeatable shuffle
    with TemporaryDirectory(prefix="oncemq-demo-") as folder, _stage(Path(folder), settings) as stage:
        plan = load([stage.app], environment=_variables(Path(folder), settings)).plan
        engine = _furnish(stage, plan)
        _publish(plan, sent, tell)
        stage.start(settings.processes)
        killed, seconds = _watch(stage, engine, prefix, len(sent), tell)
        identities = {event.identity for event in events}
        counts = _finish(stage, settings, lambda: tally(engine, prefix, len(sent), identities))
        engine.dispose()
        return Result(counts, killed, seconds, "" if counts.holds else stage.log_end())


def _furnish(stage: Stage, plan: AppPlan) -> Engine:
    """Create the tables; returns the database."""
    if plan.engine is None:
        raise OnceMQError("the example app has lost its database: install oncemq again")
    prove(plan.engine)
    schema.create(plan.engine, plan.tables())
    stage.create_tables(plan.engine.url.render_as_string(hide_password=False))
    return plan.engine


@contextmanager
def _stage(folder: Path, settings: Settings) -> Iterator[Stage]:
    stage = Stage(folder, _variables(folder, settings))
    try:
        yield stage
    finally:
        stage.stop()


def _variables(folder: Path, settings: Settings) -> dict[str, str]:
    return {
        "BROKER": _impatient(settings.broker) or f"embedded:///{folder}/broker.db",
        "DATABASE": settings.database or f"sqlite:///{folder}/orders.db",
    }


def _impatient(broker: str) -> str:
    """Return a Kafka's URL with the shortest session that brokers allow: the demo kills a worker and waits for its partitions."""
    query = urlsplit(broker).query
    if not broker.startswith("kafka:") or "session_timeout" in query or "protocol" in query:
        return broker
    return f"{broker}{'&' if query else '?'}session_timeout=6s"


def _publish(plan: AppPlan, events: Sequence[Event], tell: Tell) -> None:
    consumer = plan.consumers[0]
    adapter, target = plan.adapters[consumer.broker], consumer.subscription
    try:
        adapter.prepare([target])
        for start in range(0, len(events), _PUBLISH_TOGETHER):
            part = [event.message() for event in events[start : start + _PUBLISH_TOGETHER]]
            _insist(adapter.publish(target.topic, target.options, part), target)
            tell("publishing", min(start + _PUBLISH_TOGETHER, len(events)), len(events))
    finally:
        adapter.close(grace=timedelta(seconds=5))


def _finish(stage: Stage, settings: Settings, count: Callable[[], Tally]) -> Tally:
    """Return the counts when the app has ended; lost events may still be waiting, if the app was idle too soon."""
    for more in range(_MORE + 1):
        code = stage.finish()
        if code:
            raise OnceMQError(f"the app ended with exit code {code}; the last it said:\n{stage.log_end()}")
        counts = count()
        if not counts.lost or more == _MORE:
            break
        stage.start(settings.processes)
    return counts


def _insist(answers: Sequence[object], target: Subscription) -> None:
    refused = [answer for answer in answers if isinstance(answer, Refused)]
    if refused:
        raise OnceMQError(
            f"the broker refused {len(refused)} messages for {target.topic!r}: {refused[0].error}"
        )


def _watch(stage: Stage, engine: Engine, prefix: str, total: int, tell: Tell) -> tuple[int | None, float]:
    """Kill one worker midway and wait until every message is settled, or the app has ended."""
    killed: int | None = None
    began = last_change = time.monotonic()
    first: float | None = None
    seen = 0
    while stage.running() and seen < total:
        time.sleep(_LOOK_EVERY)
        now, done = time.monotonic(), progress(engine, prefix)
        if done != seen:
            first, last_change, seen = first or now, now, done
            tell("consuming", min(seen, total), total)
        if killed is None and seen >= _KILL_AT * total:
            killed = stage.kill_a_worker()
            if killed is not None:
                tell(f"killed worker process {killed} with SIGKILL", seen, total)
        if now - last_change > _STUCK_AFTER:
            raise OnceMQError(
                f"nothing has moved for {_STUCK_AFTER:.0f} s; the last the app said:\n{stage.log_end()}"
            )
    return killed, last_change - (first or began)
