"""A shop that takes orders in a transaction and tells a topic of them; a program that can be killed on its way.

Run as `python -m support.apps.transactional_app SPEC`, with a `Spec` as JSON.
"""

import json
import os
import signal
import sys
from dataclasses import asdict, dataclass
from typing import Any

from sqlalchemy.orm import Session

from oncemq import App
from oncemq.engine.plan import AppPlan
from oncemq.engine.publishers.transactional_publisher import TransactionalPublisher
from support.effects import Name, give


@dataclass(frozen=True, slots=True)
class Spec:
    """Where an order is taken, and where the process dies.

    Args:
        name: fresh; the app's, and part of the topic's.
        broker: a URL.
        database: a URL.
        point: where the process kills itself; the order's name, too.
    """

    name: str
    broker: str
    database: str
    point: str = ""

    @property
    def topic(self) -> str:
        """Where it is told."""
        return f"paid-{self.name}"

    def command(self) -> list[str]:
        """Return the program that takes one order."""
        return [sys.executable, "-m", "support.apps.transactional_app", json.dumps(asdict(self))]

    def plan(self) -> AppPlan:
        """Return the app: `count` leaves an effect for every order it hears of, copies included."""
        app = App(self.name, brokers={"broker": self.broker}, database=self.database)
        meaning: dict[str, Any] = {"key": "body.key", "identity": "message_id"}
        app.topic(self.topic, strategies=["unique_key"], **meaning)

        @app.consumer(topic=self.topic)
        def count(body: dict, session: Session) -> None:
            give(session, body)

        return app.plan()


def take(publisher: TransactionalPublisher, spec: Spec, order: str) -> None:
    """Take an order: its row, and a message."""
    with publisher.transaction(spec.topic, {"id": order, "key": order}) as session:
        session.add(Name(name=order))


def main(text: str) -> int:
    """Take one order, named like the point at which this process kills itself."""
    spec = Spec(**json.loads(text))

    def point(name: str) -> None:
        if name == spec.point:
            os.kill(os.getpid(), signal.SIGKILL)

    with TransactionalPublisher(spec.plan(), point=point) as publisher:
        take(publisher, spec, spec.point)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
