"""`reply: true` on RocketMQ: Java's `producer.request` gets the committed result, and a copy of the request the same."""

import json
import sqlite3
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from oncemq.message.envelope import OutgoingMessage
from oncemq_adapters.rocketmq.remoting.producer.answers import CORRELATION, REQUESTER
from support.apps.program import eventually
from support.apps.warm import WarmProgram
from support.brokers.java_peer import JavaPeer, compiled
from support.brokers.rocketmq import adapter_on

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

APP = """\
app: {name}
brokers: {{main: {{url: "{url}"}}}}
database: {{url: "sqlite:///{folder}/shop.db"}}
topics:
  {name}: {{key: body.id, identity: [body.id], create: true, queues: 1, strategies: [unique_key: {{result: true}}]}}
consumers:
  price: {{topic: {name}, handler: "handlers:price", reply: true, retry: {{attempts: 2, backoff: {{first: 100ms}}}}}}
"""
HANDLERS = """
from pathlib import Path

from sqlalchemy import text
from sqlalchemy.orm import Session


def price(order: dict, session: Session) -> dict:
    wish = Path("fail")
    if wish.exists():
        wish.unlink()
        raise ConnectionError("the price list is away")
    session.execute(text("INSERT INTO effects (id) VALUES (:id)"), {"id": order["id"]})
    number = session.scalar(text("SELECT count(*) FROM effects"))
    return {"number": number, "id": order["id"], "text": "x" * order.get("size", 0)}
"""


@pytest.fixture(scope="module")
def java(rocketmq_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaPeer]:
    """A Java process that asks."""
    with compiled(tmp_path_factory.mktemp("peer")) as folder, JavaPeer(rocketmq_url, folder) as peer:
        yield peer


class Shop:
    """The program that answers, and the Java process that asks.

    Args:
        folder: the program's.
        name: of app and topic.
        java: asks.
    """

    def __init__(self, folder: Path, name: str, java: JavaPeer) -> None:
        self.folder, self.name, self.java = folder, name, java
        self.program = WarmProgram(folder)

    def ask(self, **order: Any) -> Any:
        """Return Java's answer."""
        before = len(self.java.received)
        self.java.order("request", self.name, json.dumps(order, separators=(",", ":")), 40_000)
        return self.java.wait_for(before + 1)[before]

    def effects(self) -> list[str]:
        """Return what was applied, in order."""
        with sqlite3.connect(self.folder / "shop.db") as connection:
            return [row[0] for row in connection.execute("SELECT id FROM effects ORDER BY rowid")]


@pytest.fixture
def shop(rocketmq_url: str, fresh: str, tmp_path: Path, java: JavaPeer) -> Iterator[Shop]:
    """A consumer that runs."""
    (tmp_path / "app.yaml").write_text(APP.format(name=fresh, url=rocketmq_url, folder=tmp_path))
    (tmp_path / "handlers.py").write_text(HANDLERS)
    with sqlite3.connect(tmp_path / "shop.db") as connection:
        connection.execute("CREATE TABLE effects (id TEXT)")
    shop = Shop(tmp_path, fresh, java)
    shop.program.succeed("tables", "create")
    shop.program.succeed("run", "--until-idle", "100ms")
    with shop.program.started("run", "--processes", "1") as running:
        eventually(lambda: "consumer started" in running.said(), "the consumer", said=running.said)
        yield shop


def test_java_gets_the_committed_result(shop: Shop) -> None:
    """And for a copy the stored one, to the byte; the effect is there once."""
    first, other, again = shop.ask(id="a"), shop.ask(id="b"), shop.ask(id="a")
    assert json.loads(first.body) == {"number": 1, "id": "a", "text": ""}
    assert json.loads(other.body)["number"] == 2
    assert again.body == first.body
    assert first.properties["content-type"] == "application/json"
    assert shop.effects() == ["a", "b"]


def test_java_unpacks_a_large_answer(shop: Shop) -> None:
    """It is sent packed, as messages are."""
    assert json.loads(shop.ask(id="a", size=20_000).body)["text"] == "x" * 20_000


def test_a_request_that_is_tried_again_is_answered_then(shop: Shop) -> None:
    """The copy that waits for its retry still says who asked."""
    (shop.folder / "fail").touch()
    assert json.loads(shop.ask(id="a").body)["number"] == 1
    assert not (shop.folder / "fail").exists()


def test_an_answer_for_a_requester_that_has_gone_is_dropped(shop: Shop, rocketmq_url: str) -> None:
    """It stops nothing: the request is applied, and the next one is answered."""
    gone = {REQUESTER: "127.0.0.1@gone", CORRELATION: "c"}
    publisher = adapter_on(rocketmq_url)
    publisher.prepare([])
    publisher.publish(shop.name, {}, [OutgoingMessage(b'{"id":"a"}', gone, "a", "m")])
    publisher.close(grace=timedelta(seconds=2))
    assert json.loads(shop.ask(id="b").body)["number"] == 2
    assert shop.effects() == ["a", "b"]
    eventually(lambda: "answer dropped" in shop.program.log.read_text(), "the log line")
