"""`reply: true` on RabbitMQ: a plain RPC client gets the committed result, a copy of its request the same."""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pika import BasicProperties
from pika.adapters.blocking_connection import BlockingChannel
from sqlalchemy import create_engine, text

from support.apps.program import eventually
from support.apps.warm import WarmProgram
from support.brokers.rabbitmq import connect

APP = """\
app: {name}
brokers: {{main: {{url: "{url}"}}}}
database: {{url: "sqlite:///{folder}/shop.db"}}
topics:
  {name}: {{queue: {name}, key: body.id, identity: [body.id], strategies: [unique_key: {{result: true}}]}}
consumers:
  price: {{topic: {name}, handler: "handlers:price", reply: true, middlewares: ["handlers:Death"],
          retry: {{attempts: 2, backoff: {{first: 100ms}}}}}}
"""
HANDLERS = '''
import os
import signal
from pathlib import Path

from sqlalchemy import text
from sqlalchemy.orm import Session


def price(order: dict, session: Session) -> dict:
    wish = Path("fail")
    if wish.exists():
        wish.unlink()
        raise ConnectionError("the price list is away")
    session.execute(text("INSERT INTO effects (id) VALUES (:id)"), {"id": order["id"]})
    return {"number": session.scalar(text("SELECT count(*) FROM effects")), "id": order["id"]}


class Death:
    """Kills the process after the commit and before the answer, once and if it is asked to."""

    def after_commit(self, message) -> None:
        wish = Path("die")
        if wish.exists():
            wish.unlink()
            os.kill(os.getpid(), signal.SIGKILL)
'''
RUN = ("run", "--processes", "1")


class Shop:
    """The program, and a client that knows nothing of it.

    Args:
        folder: the program's.
        name: of app, topic and queue.
        channel: the client's.
    """

    def __init__(self, folder: Path, name: str, channel: BlockingChannel) -> None:
        self.folder, self.name, self.channel = folder, name, channel
        self.program = WarmProgram(folder)

    def ask(self, order: str, reply_to: str | None, correlation_id: str = "c-1") -> None:
        """Send a request."""
        asked = BasicProperties(reply_to=reply_to, correlation_id=correlation_id, message_id="m")
        self.channel.basic_publish("", self.name, json.dumps({"id": order}).encode(), asked)

    def answer(self, queue: str) -> tuple[Any, bytes]:
        """Return properties and body of the next answer."""
        found: list[tuple[Any, bytes]] = []

        def came() -> bool:
            method, properties, body = self.channel.basic_get(queue, auto_ack=True)
            if method is not None:
                found.append((properties, body))
            return bool(found)

        eventually(came, "an answer", said=self.program.log.read_text)
        return found[0]

    def effects(self) -> list[str]:
        """Return what was applied, in order."""
        with sqlite3.connect(self.folder / "shop.db") as connection:
            return [row[0] for row in connection.execute("SELECT id FROM effects ORDER BY rowid")]


@pytest.fixture
def shop(rabbitmq_url: str, fresh: str, tmp_path: Path) -> Iterator[Shop]:
    """A consumer's files, its queue and a client."""
    (tmp_path / "app.yaml").write_text(APP.format(name=fresh, url=rabbitmq_url, folder=tmp_path))
    (tmp_path / "handlers.py").write_text(HANDLERS)
    with sqlite3.connect(tmp_path / "shop.db") as connection:
        connection.execute("CREATE TABLE effects (id TEXT)")
    with connect(rabbitmq_url) as connection:
        channel = connection.channel()
        channel.queue_declare(fresh, durable=True)
        shop = Shop(tmp_path, fresh, channel)
        shop.program.succeed("tables", "create")
        yield shop
        channel.queue_delete(fresh)


@contextmanager
def own_queue(shop: Shop) -> Iterator[str]:
    """A queue for answers as pika's tutorial makes it."""
    yield shop.channel.queue_declare("", exclusive=True).method.queue


def test_a_copy_of_a_request_gets_the_same_answer(shop: Shop) -> None:
    """To the byte, under its own correlation id, and the effect is there once."""
    with own_queue(shop) as queue, shop.program.started(*RUN):
        shop.ask("a", queue, "first")
        properties, body = shop.answer(queue)
        shop.ask("b", queue, "other")
        shop.answer(queue)
        shop.ask("a", queue, "again")
        copied, same = shop.answer(queue)
    assert (properties.correlation_id, properties.content_type) == ("first", "application/json")
    assert json.loads(body) == {"number": 1, "id": "a"}
    assert (copied.correlation_id, same) == ("again", body)
    assert shop.effects() == ["a", "b"]


def test_direct_reply_to_works(shop: Shop) -> None:
    """RabbitMQ's own queue-less answers, the default of Spring's RabbitTemplate."""
    came: list[bytes] = []
    shop.channel.basic_consume("amq.rabbitmq.reply-to", lambda *said: came.append(said[3]), auto_ack=True)
    with shop.program.started(*RUN):
        shop.ask("a", "amq.rabbitmq.reply-to")

        def answered() -> bool:
            shop.channel.connection.process_data_events(0)
            return bool(came)

        eventually(answered, "an answer", said=shop.program.log.read_text)
    assert json.loads(came[0]) == {"number": 1, "id": "a"}


def test_a_request_that_is_tried_again_is_answered_then(shop: Shop) -> None:
    """The copy that waits for its retry still says who asked, and under which correlation id."""
    (shop.folder / "fail").touch()
    with own_queue(shop) as queue, shop.program.started(*RUN):
        shop.ask("a", queue, "patient")
        properties, body = shop.answer(queue)
    assert not (shop.folder / "fail").exists()
    assert (properties.correlation_id, json.loads(body)) == ("patient", {"number": 1, "id": "a"})


def test_a_death_between_commit_and_answer_loses_no_answer(shop: Shop) -> None:
    """The message comes again, its effect does not: it is answered by the stored result."""
    (shop.folder / "die").touch()
    with own_queue(shop) as queue:
        with shop.program.started(*RUN):
            shop.ask("a", queue)
            eventually(
                lambda: not (shop.folder / "die").exists(), "the death", said=shop.program.log.read_text
            )
        assert shop.effects() == ["a"]
        with shop.program.started(*RUN):
            _, body = shop.answer(queue)
    assert json.loads(body) == {"number": 1, "id": "a"}
    assert shop.effects() == ["a"]


def test_a_stranger_cannot_have_us_publish_to_any_queue(shop: Shop) -> None:
    """Only to queues that are made for answers; the message is applied and others are answered."""
    victim = f"{shop.name}-victim"
    shop.channel.queue_declare(victim, exclusive=True)
    with own_queue(shop) as queue, shop.program.started(*RUN):
        shop.ask("a", victim)
        shop.ask("b", queue)
        shop.answer(queue)
        assert shop.channel.basic_get(victim)[0] is None
    assert shop.effects() == ["a", "b"]
    assert "answer dropped" in shop.program.log.read_text()


@pytest.mark.parametrize(
    "gone",
    ["oncemq.replies.gone", "amq.gen-gone", "amq.rabbitmq.reply-to.no.token", "amq.rabbitmq.reply-to."],
)
def test_an_answer_for_a_requester_that_has_gone_is_dropped(shop: Shop, gone: str) -> None:
    """It stops nothing: what comes after it is answered, and nothing is redelivered; nor does a name that is nonsense."""
    with own_queue(shop) as queue, shop.program.started(*RUN):
        shop.ask("a", gone)
        shop.ask("b", queue)
        shop.answer(queue)
    assert shop.effects() == ["a", "b"]
    assert "answer dropped" in shop.program.log.read_text()
    assert shop.channel.basic_get(shop.name)[0] is None


NEIGHBOURS = """\
app: {name}
brokers: {{main: {{url: "{url}"}}}}
database: {{url: "{database}"}}
topics:
  {name}: {{key: body.key, identity: [body.id]}}
consumers:
  price: {{topic: {name}, handler: "handlers:price", reply: true, strategies: [unique_key: {{result: true}}],
          retry: {{attempts: 2, backoff: {{first: 100ms}}}}}}
  note: {{topic: {name}, handler: "handlers:note", strategies: [unique_key]}}
"""
MIXED = '''
from oncemq import Reject
from sqlalchemy import String, text
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column


class Base(DeclarativeBase):
    pass


class Priced(Base):
    __tablename__ = "priced"
    id: Mapped[str] = mapped_column(String(40), primary_key=True)
    price: Mapped[int]


FAILED = set()


def price(order: dict, session: Session) -> dict:
    """Add an object, change it by SQL, read it; fail for some after that, once or for good."""
    session.add(Priced(id=order["id"], price=1))
    session.flush()
    session.execute(text("UPDATE priced SET price = price + 41 WHERE id = :id"), {"id": order["id"]})
    if order["id"] == "never":
        raise Reject("it has no price")
    if order["id"].startswith("once") and order["id"] not in FAILED:
        FAILED.add(order["id"])
        raise ValueError("the price list is away")
    found = session.scalar(text("SELECT price FROM priced WHERE id = :id"), {"id": order["id"]})
    return {"id": order["id"], "price": found}


def note(order: dict, session: Session) -> None:
    """Write something else about the same message, and give no answer."""
    session.execute(text("INSERT INTO notes (id) VALUES (:id)"), {"id": order["id"]})
'''


@pytest.mark.parametrize("database", ["postgresql_database", "mariadb_database"])
def test_each_request_of_a_unit_gets_its_own_answer(
    database: str, request: pytest.FixtureRequest, rabbitmq_url: str, fresh: str, tmp_path: Path
) -> None:
    """Beside copies, requests that fail once or for good, two spellings of an id, and another consumer of the topic."""
    place = request.getfixturevalue(database)
    (tmp_path / "app.yaml").write_text(NEIGHBOURS.format(name=fresh, url=rabbitmq_url, database=place))
    (tmp_path / "handlers.py").write_text(MIXED)
    engine = create_engine(place)
    with engine.begin() as connection:
        exact = " CHARACTER SET utf8mb4 COLLATE utf8mb4_bin" if engine.dialect.name == "mysql" else ""
        connection.execute(text(f"CREATE TABLE priced (id VARCHAR(40){exact} PRIMARY KEY, price INTEGER)"))
        connection.execute(text(f"CREATE TABLE notes (id VARCHAR(40){exact})"))
    program = WarmProgram(tmp_path)
    program.succeed("tables", "create")
    program.succeed("run", "--until-idle", "300ms")  # its queues are there now
    ids = ["a", "once-1", "b", "never", "a", "A", "c", "once-2", "b", *(f"n{number}" for number in range(20))]
    with connect(rabbitmq_url) as connection:
        channel = connection.channel()
        queue = channel.queue_declare("", exclusive=True).method.queue
        for number, each in enumerate(ids):
            asked = BasicProperties(reply_to=queue, correlation_id=str(number))
            body = json.dumps({"id": each, "key": each.lower()}).encode()
            channel.basic_publish("oncemq", fresh, body, asked)
        program.succeed("run", "--until-idle", "2s")
        answers: dict[str, Any] = {}
        while (found := channel.basic_get(queue, auto_ack=True))[0] is not None:
            answers.setdefault(found[1].correlation_id, json.loads(found[2]))
    expected = {str(at): {"id": each, "price": 42} for at, each in enumerate(ids) if each != "never"}
    assert answers == expected
    with engine.connect() as connection:
        assert set(connection.scalars(text("SELECT id FROM priced"))) == set(ids) - {"never"}
        assert sorted(connection.scalars(text("SELECT id FROM notes"))) == sorted(set(ids))
    engine.dispose()
