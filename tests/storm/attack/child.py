"""What a process under attack does: consume with a killer inside, or publish and write down what was confirmed."""

import json
import os
import signal
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import islice
from pathlib import Path
from time import monotonic, sleep
from typing import Any

from oncemq.common.durations import parse_duration
from oncemq.config import load
from oncemq.contracts.adapter import Confirmed
from oncemq.engine.application import Application
from oncemq.errors import OnceMQError
from oncemq.message.envelope import OutgoingMessage
from oncemq.observe.logs import configure
from storm.attack import handlers
from storm.attack.files import ARRIVALS, SENDS, Trace
from storm.attack.killer import Killer
from storm.attack.wiring import wired

APP = "app.yaml"
MESSAGES = "messages.tsv"


@dataclass(frozen=True, slots=True)
class Order:
    """What a child shall do; travels as JSON.

    Args:
        task: `consume` or `publish`.
        folder: the stage's.
        environment: what the app's YAML expands.
        point: where to die; empty = nowhere.
        passes: at which pass of the point.
        until_idle: end when nothing has come for so long, such as `1s`; empty = at SIGTERM.
        arrivals: write down what is received.
        first: the first line of the messages' file to publish.
        last: the one after the last.
        batch: how many are published at once.
        rate: messages a second at most; 0 = as fast as it goes.
    """

    task: str
    folder: str
    environment: dict[str, str] = field(default_factory=dict)
    point: str = ""
    passes: int = 1
    until_idle: str = ""
    arrivals: bool = True
    first: int = 0
    last: int = 0
    batch: int = 200
    rate: float = 0.0


def main(order: Order) -> int:
    """Do what `order` says; returns the exit code."""
    os.environ["STORM_FOLDER"] = order.folder
    os.environ.update(order.environment)
    return consume(order) if order.task == "consume" else publish(order)


def _load(order: Order) -> Any:
    loaded = load([Path(order.folder) / APP], environment=order.environment)
    configure("warning", "console", secrets=loaded.secrets)
    return loaded.plan


def consume(order: Order) -> int:
    """Run the app in this process."""
    folder = Path(order.folder)
    killer = Killer(folder, order.point, order.passes)
    handlers.surroundings().point = killer
    plan = wired(_load(order), killer, Trace(folder / ARRIVALS) if order.arrivals else None)
    app = Application(plan, point=killer)
    signal.signal(signal.SIGTERM, lambda *_: app.stop())
    return app.run(parse_duration(order.until_idle) if order.until_idle else None)


def publish(order: Order) -> int:
    """Publish lines of the messages' file, each until it is confirmed; a message sent again has another id."""
    folder = Path(order.folder)
    plan = _load(order)
    adapter, target = plan.adapters["main"], plan.consumers[0].subscription
    trace = Trace(folder / SENDS)
    while not _prepared(adapter, target):
        sleep(0.2)
    with (folder / MESSAGES).open() as file:
        wanted = islice(enumerate(file), order.first, order.last)
        waiting = [(number, line.rstrip("\n")) for number, line in wanted]
    tries = dict.fromkeys((number for number, _ in waiting), 0)
    started, sent = monotonic(), 0
    while waiting:
        batch, waiting = waiting[: order.batch], waiting[order.batch :]
        again = _send(adapter, target, trace, batch, tries)
        waiting = again + waiting
        sent += len(batch) - len(again)
        if again:
            sleep(0.2)
        elif order.rate:
            sleep(max(0.0, sent / order.rate - (monotonic() - started)))
    adapter.close(grace=timedelta(seconds=5))
    return 0


def _prepared(adapter: Any, target: Any) -> bool:
    try:
        adapter.prepare([target])
    except OnceMQError:
        return False
    return True


def _send(
    adapter: Any, target: Any, trace: Trace, batch: list[tuple[int, str]], tries: dict[int, int]
) -> list[tuple[int, str]]:
    """Publish once; returns what has to be sent again."""
    for number, _ in batch:
        tries[number] += 1
    trace.write("a", *(number for number, _ in batch))
    messages = [
        OutgoingMessage(
            body.encode(), key=json.loads(body)["key"], message_id=f"{number}-{tries[number]}-{os.getpid()}"
        )
        for number, body in batch
    ]
    try:
        answers = list(adapter.publish(target.topic, target.options, messages))
    except OnceMQError:
        trace.write("u", *(number for number, _ in batch))
        return batch
    confirmed = [isinstance(answer, Confirmed) for answer in answers]
    if any(confirmed):
        trace.write("c", *(number for (number, _), yes in zip(batch, confirmed, strict=True) if yes))
    again = [message for message, yes in zip(batch, confirmed, strict=True) if not yes]
    if again:
        trace.write("u", *(number for number, _ in again))
    return again
