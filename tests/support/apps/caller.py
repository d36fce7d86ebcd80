"""A program that publishes from transactions of its own and is killed right after a commit.

Run as `python -m support.apps.caller BROKER DATABASE TOPIC`; 20 messages plainly, 40 in transactions of which every second one
is rolled back, one more whose process dies between its commit and everything that follows.
"""

import os
import signal
import sys
from dataclasses import replace
from datetime import timedelta

from sqlalchemy import create_engine
from sqlalchemy.orm import Session

from oncemq import App, AppPublisher
from support.effects import give


def app(broker: str, database: str, topic: str) -> App:
    """Return the app that both the publishing program and its worker use."""
    found = App(topic, brokers={"main": broker}, database=database)
    found.topic(topic, key="body.id", strategies=["unique_key"])

    @found.consumer(topic=topic)
    def count(body: dict, session: Session) -> None:
        give(session, body)

    return found


def order(name: str) -> dict[str, str]:
    """Return an order's body."""
    return {"id": name, "key": name}


def publish_all(publisher: AppPublisher, database: str, topic: str) -> None:
    """Publish 41 messages that must arrive and 20 that must not; does not return."""
    engine = create_engine(database)
    for number in range(20):
        publisher.publish(topic, order(f"plain-{number}"))
    for number in range(40):
        with Session(engine) as session:
            publisher.publish(topic, order(f"own-{number}"), session=session)
            if number % 2:
                session.rollback()
            else:
                session.commit()
    with Session(engine) as session:
        publisher.publish(topic, order("last"), session=session)
        session.connection().commit()
        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    plan = replace(app(*sys.argv[1:]).plan(), outbox_window=timedelta(seconds=1))
    with AppPublisher(lambda: (plan, str)) as opened:
        publish_all(opened, sys.argv[2], sys.argv[3])
