"""An app that publishes what it applies and counts what arrives of that; a program that can be killed on its way.

Run as `python -m support.apps.publishing_app SPEC`, with a `Spec` as JSON.
"""

import json
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from typing import Any

from sqlalchemy.orm import Session

from oncemq import App, Publisher
from oncemq.engine.application import Application
from oncemq.engine.plan import AppPlan
from support.effects import give


@dataclass(frozen=True, slots=True)
class Spec:
    """Where the app runs and where it dies.

    Args:
        name: fresh; part of the topics' names.
        source: URL of the broker that orders come from.
        target: URL of the broker that what is shipped goes through.
        database: URL of the database.
        folder: of the test's own.
        point: where the process kills itself; empty = nowhere.
        passes: at which pass of the point.
    """

    name: str
    source: str
    target: str
    database: str
    folder: str
    point: str = ""
    passes: int = 1

    def command(self) -> list[str]:
        """Return the program that runs the app until SIGTERM."""
        return [sys.executable, "-m", "support.apps.publishing_app", json.dumps(asdict(self))]

    def plan(self) -> AppPlan:
        """Return the app: `ship` publishes every order it applies, `count` leaves its effect."""
        app = App(
            self.name,
            brokers={"source": self.source, "target": self.target},
            database=self.database,
            state=self.folder,
        )
        meaning: dict[str, Any] = {"key": "body.key", "strategies": ["unique_key"]}
        app.topic(f"orders-{self.name}", broker="source", identity="body.id", **meaning)
        app.topic(f"shipped-{self.name}", broker="target", identity="message_id", **meaning)

        @app.consumer(topic=f"orders-{self.name}", publishes=[f"shipped-{self.name}"])
        def ship(body: dict, publisher: Publisher) -> None:
            publisher.publish(f"shipped-{self.name}", body)

        @app.consumer(topic=f"shipped-{self.name}")
        def count(body: dict, session: Session) -> None:
            give(session, body)

        return replace(app.plan(), outbox_window=timedelta(seconds=1))


def killer(spec: Spec) -> Callable[[str], None]:
    """Return what ends the process for good at the given pass of the given point."""
    passed = 0

    def point(name: str) -> None:
        nonlocal passed
        passed += name == spec.point
        if spec.point and passed == spec.passes:
            os.kill(os.getpid(), signal.SIGKILL)

    return point


def main(text: str) -> int:
    """Run the app until SIGTERM, or until it kills itself."""
    spec = Spec(**json.loads(text))
    application = Application(spec.plan(), point=killer(spec))
    signal.signal(signal.SIGTERM, lambda *_: application.stop())
    return application.run()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
