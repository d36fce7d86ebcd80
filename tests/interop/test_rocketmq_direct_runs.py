"""An administrator has our member run one message: `mqadmin queryMsgByUniqueKey -g -d` and the dashboard's "resend" ask so."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event
from time import monotonic
from uuid import uuid4

import pytest
from sqlalchemy.orm import Session

from oncemq import App
from support.brokers.java_peer import JavaPeer, compiled

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]


class Shop:
    """An app with one consumer that notes what it ran."""

    def __init__(self, url: str, folder: Path) -> None:
        self.topic, self.group = f"t{uuid4().hex[:8]}", f"g{uuid4().hex[:8]}"
        self.ran: list[str] = []
        self.error: Exception | None = None
        self.app = App("shop", brokers={"main": url}, database=f"sqlite:///{folder}/shop.db")
        self.app.topic(
            self.topic,
            key="body.id",
            identity="key",
            strategies=["unique_key"],
            queues=1,
            create=True,
            tags=["paid"],
        )

        @self.app.consumer(topic=self.topic, name="count", group=self.group, retry={"attempts": 1})
        def count(body: dict[str, str], session: Session) -> None:
            self.ran.append(body["id"])
            if self.error is not None:
                raise self.error

        self.app.create_tables()
        self.app.start()


@pytest.fixture(scope="module")
def java(rocketmq_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaPeer]:
    """A Java process with the administration client that the tool and the dashboard have."""
    with compiled(tmp_path_factory.mktemp("peer")) as classes, JavaPeer(rocketmq_url, classes) as peer:
        yield peer


@pytest.fixture
def shop(rocketmq_url: str, tmp_path: Path) -> Iterator[Shop]:
    """An app that runs."""
    shop = Shop(rocketmq_url, tmp_path)
    yield shop
    shop.app.stop()


def eventually(reached: Callable[[], bool], timeout: float = 60) -> None:
    """Wait until `reached()`."""
    deadline, pause = monotonic() + timeout, Event()
    while not reached():
        assert monotonic() < deadline, f"waited {timeout} s"
        pause.wait(0.05)


def ask(java: JavaPeer, shop: Shop, topic: str, key: str) -> str:
    """Have the app's member run the message of a key in a topic; returns its answer as the tools print it."""
    java.order("direct", shop.group, topic, key)
    return java.received[-1].body.decode()


def test_a_message_that_took_effect_answers_as_a_duplicate(shop: Shop, java: JavaPeer) -> None:
    """It goes the way of every delivery, so the strategy finds its record; the administrator is told."""
    shop.app.publish(shop.topic, {"id": "a"}, headers={"tags": "paid"})
    eventually(lambda: shop.ran == ["a"])
    assert "consumeResult=CR_SUCCESS, remark=duplicate" in ask(java, shop, shop.topic, "a")
    assert shop.ran == ["a"]


def test_a_dead_letter_is_run_again_and_fails_or_takes_effect(shop: Shop, java: JavaPeer) -> None:
    """Where it lies: the administrator is told the handler's error, and no second letter is made; later that it was applied."""
    shop.error = ValueError("no such order")
    shop.app.publish(shop.topic, {"id": "a"}, headers={"tags": "paid"})

    def letters() -> int:
        return len(list(shop.app.dead_letters.list("count")))

    eventually(lambda: letters() == 1)
    dead = f"%DLQ%{shop.group}"
    said = ask(java, shop, dead, "a")
    assert re.search(r"consumeResult=CR_THROW_EXCEPTION, remark=dead letter: .*no such order", said), said
    shop.error = None
    assert "consumeResult=CR_SUCCESS, remark=applied" in ask(java, shop, dead, "a")
    assert shop.ran == ["a", "a", "a"]
    assert letters() == 1


def test_a_message_that_the_consumer_does_not_take_is_refused(shop: Shop, java: JavaPeer) -> None:
    """In words and at once: its tag is not subscribed to."""
    shop.app.publish(shop.topic, {"id": "b"}, headers={"tags": "lost"})
    said = ask(java, shop, shop.topic, "b")
    assert "consumeResult=CR_THROW_EXCEPTION, remark=consumer 'count' does not take tag 'lost': paid" in said
    assert shop.ran == []
