"""Follows one message through the framework: `python -m benchmarks.walk` prints its way, file by file.

Two counts come with it: our own frames between the worker's thread and the handler, and the files that the message
passes in the framework. The message is one of several in steady state, so nothing of the start is counted.
"""

import argparse
import itertools
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

from sqlalchemy import create_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from oncemq import App

TOPIC = "orders"
WARM_UP = 3
"""Messages before the one that is followed."""
_ROOTS = ("oncemq", "oncemq_adapters", "oncemq_strategies")


class Base(DeclarativeBase):
    """The tables of the followed handler."""


class Order(Base):
    """The effect of one message."""

    __tablename__ = "walk_orders"

    order_id: Mapped[str] = mapped_column(primary_key=True)


@dataclass
class Walk:
    """What was seen of one message.

    Attributes:
        frames: our own functions from the worker's thread to the handler, outermost first.
        steps: `file:function` of each call on the worker's thread, each once, in the order of the first call.
        changes: how often a call went from one file to another.
    """

    frames: list[str] = field(default_factory=list)
    steps: list[str] = field(default_factory=list)
    changes: int = 0

    @property
    def files(self) -> list[str]:
        """The files of the frames and of the steps, in order."""
        return list(dict.fromkeys(step.partition(":")[0] for step in [*self.frames[:1], *self.steps]))


class Tracer:
    """Records calls of the threads that it sees, while it is switched on."""

    def __init__(self) -> None:
        self.calls: dict[int, list[str]] = {}
        self.on = False

    def __call__(self, frame: FrameType, what: str, _argument: Any) -> None:
        """Note a call of our own code; the form that `threading.setprofile` wants."""
        if self.on and what == "call":
            name = own(frame)
            if name is not None:
                self.calls.setdefault(threading.get_ident(), []).append(name)


def own(frame: FrameType) -> str | None:
    """Return `file:function` of our own code; None for other code."""
    path = frame.f_code.co_filename
    if not any(f"{os.sep}{root}{os.sep}" in path for root in _ROOTS) or "site-packages" in path:
        return None
    file = Path(path).as_posix()
    for root in _ROOTS:
        start = file.rfind(f"/{root}/")
        if start >= 0:
            file = file[start + 1 :]
            break
    return f"{file}:{frame.f_code.co_qualname}"


def follow(database: str, strategies: list[str]) -> Walk:
    """Run an app until the followed message was acknowledged, and return its way."""
    tracer, walk = Tracer(), Walk()
    handled: list[int] = []
    with tempfile.TemporaryDirectory(prefix="oncemq-walk-") as folder:
        engine = create_engine(database.format(folder=folder))
        Base.metadata.create_all(engine)
        app = App(
            "walk",
            brokers={"local": f"embedded:///{folder}/broker.db"},
            database=database.format(folder=folder),
            state=f"{folder}/state",
        )
        app.topic(TOPIC, key="body.order_id", strategies=strategies)

        @app.consumer(topic=TOPIC, name="save-order")
        def save(order: dict, session: Session) -> None:  # type: ignore[type-arg]
            """Insert one row, and note who called."""
            session.add(Order(order_id=order["order_id"]))
            handled.append(threading.get_ident())
            frame: FrameType | None = sys._getframe(1)
            stack = []
            while frame is not None:
                name = own(frame)
                if name is not None:
                    stack.append(name)
                frame = frame.f_back
            walk.frames = stack[::-1]

        threading.setprofile(tracer)
        try:
            app.create_tables()
            app.start()
            for number in range(WARM_UP + 1):
                tracer.on = number == WARM_UP
                app.publish(TOPIC, {"order_id": f"order-{number}"})
                _wait_for(lambda number=number: len(handled) > number)  # type: ignore[misc]
            # The acknowledgement follows the handler, and stopping waits for it.
            app.stop()
            tracer.on = False
        finally:
            threading.setprofile(None)
            app.stop()
            engine.dispose()
    calls = tracer.calls.get(handled[-1], [])
    walk.steps = list(dict.fromkeys(calls))
    files = [call.partition(":")[0] for call in calls]
    walk.changes = sum(before != after for before, after in itertools.pairwise(files))
    return walk


def _wait_for(happened: Callable[[], bool], seconds: float = 10.0) -> None:
    end = time.monotonic() + seconds
    while not happened():
        if time.monotonic() > end:
            raise TimeoutError("the followed message was not handled")
        time.sleep(0.01)


def main() -> None:
    """Print the way of one message, and the two counts."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.walk", description=__doc__)
    parser.add_argument(
        "--database", default="sqlite:///{folder}/walk.db", help="a URL; {folder} is a temporary one"
    )
    parser.add_argument("--strategies", nargs="+", default=["unique_key"])
    chosen = parser.parse_args()
    walk = follow(chosen.database, chosen.strategies)
    print("from the worker's thread to the handler:")
    for depth, name in enumerate(walk.frames):
        print(f"  {'  ' * depth}{name}")
    print("\nthe whole way on that thread, each function at its first call:")
    for step in walk.steps:
        print(f"  {step}")
    print("\nthe files of the whole way:")
    for file in walk.files:
        print(f"  {file}")
    own = [file for file in walk.files if file.startswith("oncemq/")]
    engine = [file for file in own if file.startswith("oncemq/engine/")]
    print(
        f"\n{len(walk.frames)} frames to the handler; {len(walk.files)} files on the way, {len(own)} of them the framework's "
        f"and {len(engine)} the engine's; {walk.changes} changes of file"
    )


if __name__ == "__main__":
    main()
