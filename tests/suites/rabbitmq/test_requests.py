"""`publisher.request` on RabbitMQ: the committed result as the answer, through lost connections, and errors that say what is known."""

import asyncio
import json
import multiprocessing
import re
import socket
import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from pika import BasicProperties
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import UnroutableError

import oncemq
from oncemq import AppPublisher, RequestFailed, RequestTimeout, Unroutable
from oncemq.errors import BrokerUnavailable
from oncemq.testing.tcp_proxy import TcpProxy
from oncemq_adapters.rabbitmq.publishing import requests
from support.apps.pricing import PRICING
from support.apps.program import eventually
from support.apps.warm import WarmProgram
from support.brokers.rabbitmq import connect, through

APP = """\
app: {name}
brokers: {{main: {{url: "{url}"}}}}
database: {{url: "sqlite:///{folder}/shop.db"}}
topics:
  {name}: {{key: body.id, identity: [body.id], strategies: [unique_key: {{result: true}}]}}
  {name}.outer: {{key: body.id, strategies: [none]}}
consumers:
  price: {{topic: {name}, handler: "handlers:price", reply: true, retry: {{attempts: 1}}}}
"""
RUN = ("run", "--processes", "1")


class Shop:
    """The program that answers, and publishers that ask.

    Args:
        folder: the program's.
        name: of app and topic.
        channel: of a client that looks from outside.
    """

    def __init__(self, folder: Path, name: str, channel: BlockingChannel) -> None:
        self.folder, self.name, self.channel = folder, name, channel
        self.program = WarmProgram(folder)

    @contextmanager
    def publisher(self, url: str | None = None) -> Iterator[AppPublisher]:
        """Open a publisher of the app, with another way to the broker if given."""
        files = [self.folder / "app.yaml"]
        if url is not None:
            files.append(self.folder / "other.yaml")
            files[1].write_text(f'brokers: {{main: {{url: "{url}", publish_timeout: 2s}}}}\n')
        with oncemq.open_publisher(*files) as publisher:
            yield publisher

    def effects(self) -> list[str]:
        """Return what was applied, in order."""
        with sqlite3.connect(self.folder / "shop.db") as connection:
            return [row[0] for row in connection.execute("SELECT id FROM effects ORDER BY rowid")]

    def exists(self, queue: str) -> bool:
        """Return whether the broker has a queue; a declaration would count as its use, a message does not."""
        channel = self.channel.connection.channel()
        channel.confirm_delivery()
        try:
            channel.basic_publish("", queue, b"", mandatory=True)
        except UnroutableError:
            return False
        finally:
            channel.close()
        return True


@pytest.fixture
def shop(rabbitmq_url: str, fresh: str, tmp_path: Path) -> Iterator[Shop]:
    """A consumer's files, its queue and a client."""
    (tmp_path / "app.yaml").write_text(APP.format(name=fresh, url=rabbitmq_url, folder=tmp_path))
    (tmp_path / "handlers.py").write_text(PRICING)
    with sqlite3.connect(tmp_path / "shop.db") as connection:
        connection.execute("CREATE TABLE effects (id TEXT)")
    with connect(rabbitmq_url) as connection:
        shop = Shop(tmp_path, fresh, connection.channel())
        shop.program.succeed("tables", "create")
        shop.program.succeed("run", "--until-idle", "100ms")
        yield shop


@contextmanager
def answering_by_hand(shop: Shop, queue: str) -> Iterator[None]:
    """Bind a queue of the test's own to the topic `outer`, whose requests the test answers."""
    shop.channel.queue_declare(queue, exclusive=True)
    shop.channel.queue_bind(queue, "oncemq", f"{shop.name}.outer")
    yield
    shop.channel.queue_delete(queue)


def next_request(shop: Shop, queue: str) -> tuple[Any, bytes]:
    """Return the properties and the body of the next request."""
    found: list[tuple[Any, bytes]] = []

    def came() -> bool:
        method, properties, body = shop.channel.basic_get(queue, auto_ack=True)
        if method is not None:
            found.append((properties, body))
        return bool(found)

    eventually(came, "a request")
    return found[0]


def answer(shop: Shop, properties: Any, body: bytes, correlation_id: str | None = None) -> None:
    """Answer as any AMQP service does."""
    said = BasicProperties(
        correlation_id=properties.correlation_id if correlation_id is None else correlation_id
    )
    shop.channel.basic_publish("", properties.reply_to, body, said)


def test_a_request_returns_the_committed_result(shop: Shop) -> None:
    """And the same one when it is asked again with the same identity; the effect is there once."""
    with shop.program.started(*RUN), shop.publisher() as publisher:
        first = publisher.request(shop.name, {"id": "a"}, wait="30s")
        other = publisher.request(shop.name, {"id": "b"}, wait=30)
        again = publisher.request(shop.name, {"id": "a"}, wait="30s")
    assert (first, other) == ({"number": 1, "id": "a"}, {"number": 2, "id": "b"})
    assert again == first
    assert shop.effects() == ["a", "b"]


def test_threads_get_their_own_answers(shop: Shop) -> None:
    """A hundred requests of one publisher at once are not mixed up."""
    names = [f"n{number}" for number in range(100)]
    with shop.program.started(*RUN), shop.publisher() as publisher, ThreadPoolExecutor(20) as threads:
        found = threads.map(lambda name: publisher.request(shop.name, {"id": name}, wait="60s")["id"], names)
        assert list(found) == names
    assert sorted(shop.effects()) == sorted(names)


def test_coroutines_wait_without_a_thread_each(shop: Shop) -> None:
    """Far more requests wait together than the async publisher has threads."""

    async def ask() -> list[Any]:
        async with oncemq.open_async_publisher(shop.folder / "app.yaml") as publisher:
            asked = [publisher.request(shop.name, {"id": f"n{number}"}, wait="60s") for number in range(50)]
            waiting = asyncio.gather(*asked)
            eventually_published = asyncio.to_thread(shop.program.succeed, "run", "--until-idle", "500ms")
            done, _ = await asyncio.gather(waiting, eventually_published)
            return list(done)

    assert [found["id"] for found in asyncio.run(ask())] == [f"n{number}" for number in range(50)]


def test_no_answer_says_what_is_known(shop: Shop) -> None:
    """Topic, id and that the request may still take effect; asked again it does so once, with the same answer."""
    with shop.publisher() as publisher:
        with pytest.raises(RequestTimeout, match="may still take effect") as found:
            publisher.request(shop.name, {"id": "a"}, wait="100ms", message_id="m-1")
        assert (found.value.topic, found.value.message_id) == (shop.name, "m-1")
        with shop.program.started(*RUN):
            again = publisher.request(shop.name, {"id": "a"}, wait="30s")
    assert again == {"number": 1, "id": "a"}
    assert shop.effects() == ["a"]


def test_a_coroutine_has_the_same_time_out(shop: Shop) -> None:
    """With the topic and the id of its message."""

    async def ask() -> None:
        async with oncemq.open_async_publisher(shop.folder / "app.yaml") as publisher:
            await publisher.request(shop.name, {"id": "a"}, wait="100ms", message_id="m-1")

    with pytest.raises(RequestTimeout, match="m-1"):
        asyncio.run(ask())


def test_an_answer_under_another_correlation_id_is_not_taken(shop: Shop) -> None:
    """Two requests wait: each gets its own answer, whatever else comes."""
    queue, topic = f"{shop.name}-hand", f"{shop.name}.outer"
    with answering_by_hand(shop, queue), shop.publisher() as publisher, ThreadPoolExecutor(2) as threads:
        first = threads.submit(publisher.request, topic, {"id": "a"}, wait="60s")
        earlier, body = next_request(shop, queue)
        second = threads.submit(publisher.request, topic, {"id": "b"}, wait="60s")
        other, _ = next_request(shop, queue)
        answer(shop, earlier, b'"of a stranger"', "unknown")
        answer(shop, earlier, b'"without an id"', "")
        answer(shop, other, b'"of b"')
        assert second.result(60) == "of b"
        answer(shop, other, b'"too late"')
        answer(shop, earlier, b'"of a"')
        assert first.result(60) == "of a"
    assert (body, earlier.reply_to) == (b'{"id":"a"}', other.reply_to)


@pytest.mark.parametrize("body", [b"", b"not JSON", b"\xff"])
def test_an_answer_that_is_not_json_is_a_clear_error(shop: Shop, body: bytes) -> None:
    """As from a service that is not ours."""
    queue = f"{shop.name}-hand"
    with answering_by_hand(shop, queue), shop.publisher() as publisher, ThreadPoolExecutor(1) as thread:
        asked = thread.submit(publisher.request, f"{shop.name}.outer", {"id": "a"}, wait="30s")
        properties, _ = next_request(shop, queue)
        answer(shop, properties, body)
        with pytest.raises(RequestFailed, match="not JSON") as found:
            asked.result(30)
    assert found.value.reason == "unreadable"


def test_a_rejected_request_says_why(shop: Shop) -> None:
    """In the handler's own words, without waiting for the time-out; it is a dead letter and has no effect."""
    asked = {"id": "a", "reject": "no such price"}
    with (
        shop.program.started(*RUN),
        shop.publisher() as publisher,
        pytest.raises(RequestFailed, match="rejected: no such price") as found,
    ):
        publisher.request(shop.name, asked, wait="60s", message_id="m-1")
    assert (found.value.reason, found.value.topic, found.value.message_id) == ("rejected", shop.name, "m-1")
    assert shop.effects() == []


def test_an_unexpected_error_stays_inside(shop: Shop) -> None:
    """The requester learns that it failed for good, and not what the exception shows."""
    with (
        shop.program.started(*RUN),
        shop.publisher() as publisher,
        pytest.raises(RequestFailed, match="attempts-exhausted") as found,
    ):
        publisher.request(shop.name, {"id": "a", "fail": "s3cret"}, wait="60s")
    assert "s3cret" not in str(found.value)
    assert shop.effects() == []


def test_a_client_that_does_not_ask_for_failures_gets_none(shop: Shop) -> None:
    """A plain RPC client would take it for the result."""
    queue = shop.channel.queue_declare("", exclusive=True).method.queue
    asked = [{"id": "a", "reject": "no"}, {"id": "b"}]
    with shop.program.started(*RUN):
        for order in asked:
            sent = BasicProperties(reply_to=queue, correlation_id=order["id"])
            shop.channel.basic_publish("oncemq", shop.name, json.dumps(order).encode(), sent)
        properties, _ = next_request(shop, queue)
    assert properties.correlation_id == "b"
    assert shop.channel.basic_get(queue)[0] is None


def test_answers_are_counted(shop: Shop) -> None:
    """By what became of them: results, failures, and those for which there is no way to the requester."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with (shop.folder / "app.yaml").open("a") as file:
        file.write(f'http: {{address: "127.0.0.1:{port}"}}\n')
    lost = BasicProperties(reply_to="oncemq.replies.gone", correlation_id="c")
    with shop.program.started(*RUN), shop.publisher() as publisher:
        for name in ("a", "a", "b"):
            publisher.request(shop.name, {"id": name}, wait="60s")
        with pytest.raises(RequestFailed):
            publisher.request(shop.name, {"id": "c", "reject": "no"}, wait="60s")
        shop.channel.basic_publish("oncemq", shop.name, b'{"id": "d"}', lost)

        def counted() -> dict[str, float]:
            text = urlopen(f"http://127.0.0.1:{port}/metrics").read().decode()
            found = re.findall(r'oncemq_answers_total{answer="(\w+)",consumer="price".*} ([0-9.]+)', text)
            return {what: float(count) for what, count in found}

        expected = {"result": 3.0, "failure": 1.0, "dropped": 1.0}
        eventually(lambda: counted() == expected, "the counts", said=lambda: str(counted()))


def test_an_answer_survives_a_lost_connection(shop: Shop, rabbitmq_url: str) -> None:
    """It waits in the queue until the requester is back, which has the same queue then."""
    queue = f"{shop.name}-hand"
    proxy = TcpProxy("127.0.0.1", int(rabbitmq_url.rsplit(":", 1)[1].split("/", maxsplit=1)[0]))
    with (
        answering_by_hand(shop, queue),
        shop.publisher(through(rabbitmq_url, proxy.port)) as publisher,
        ThreadPoolExecutor(1) as thread,
    ):
        asked = thread.submit(publisher.request, f"{shop.name}.outer", {"id": "a"}, wait="60s")
        properties, _ = next_request(shop, queue)
        proxy.refuse()
        answer(shop, properties, b'"patient"')
        proxy.accept()
        assert asked.result(60) == "patient"
        again = thread.submit(publisher.request, f"{shop.name}.outer", {"id": "b"}, wait="60s")
        later, _ = next_request(shop, queue)
        answer(shop, later, b'"same place"')
        assert again.result(60) == "same place"
    proxy.close()
    assert later.reply_to == properties.reply_to


def test_a_deleted_queue_for_answers_is_made_again(shop: Shop) -> None:
    """By an operator, or after it had expired; a request that waits already is answered there."""
    queue = f"{shop.name}-hand"
    with answering_by_hand(shop, queue), shop.publisher() as publisher, ThreadPoolExecutor(1) as thread:
        asked = thread.submit(publisher.request, f"{shop.name}.outer", {"id": "a"}, wait="60s")
        properties, _ = next_request(shop, queue)
        shop.channel.queue_delete(properties.reply_to)
        eventually(lambda: shop.exists(properties.reply_to), "the queue for answers")
        answer(shop, properties, b"1")
        assert asked.result(60) == 1


def test_the_queue_for_answers_goes_with_the_publisher(shop: Shop) -> None:
    """A publisher that is closed leaves nothing at the broker."""
    queue = f"{shop.name}-hand"
    with answering_by_hand(shop, queue), ThreadPoolExecutor(1) as thread:
        with shop.publisher() as publisher:
            asked = thread.submit(publisher.request, f"{shop.name}.outer", {"id": "a"}, wait="60s")
            properties, _ = next_request(shop, queue)
            assert properties.reply_to.startswith(f"oncemq.replies.{shop.name}.")
            answer(shop, properties, b"1")
            assert asked.result(60) == 1
            assert shop.exists(properties.reply_to)
        eventually(lambda: not shop.exists(properties.reply_to), "the end of the queue")


def _ask_for_ever(folder: Path, topic: str) -> None:
    requests.Requests.__init__.__defaults__ = (timedelta(seconds=1),)  # type: ignore[attr-defined]
    oncemq.open_publisher(folder / "app.yaml").request(topic, {"id": "a"}, wait="1h")


def test_the_broker_removes_the_queue_of_a_process_that_died(shop: Shop) -> None:
    """Once it was not read for a while."""
    queue = f"{shop.name}-hand"
    with answering_by_hand(shop, queue):
        process = multiprocessing.get_context("fork").Process(
            target=_ask_for_ever, args=(shop.folder, f"{shop.name}.outer")
        )
        process.start()
        place = next_request(shop, queue)[0].reply_to
        process.kill()
        process.join(60)
        eventually(lambda: not shop.exists(place), "the end of the queue", timeout=30)


def test_a_closed_publisher_ends_the_wait(shop: Shop) -> None:
    """Of a thread that would wait for minutes."""
    with answering_by_hand(shop, f"{shop.name}-hand"), ThreadPoolExecutor(1) as thread:
        with shop.publisher() as publisher:
            asked = thread.submit(publisher.request, f"{shop.name}.outer", {"id": "a"}, wait="10m")
            next_request(shop, f"{shop.name}-hand")
        with pytest.raises(BrokerUnavailable, match="may still take effect"):
            asked.result(30)


def test_a_request_that_no_queue_takes_is_refused_at_once(shop: Shop) -> None:
    """Instead of waiting for an answer that cannot come."""
    with shop.publisher() as publisher, pytest.raises(Unroutable):
        publisher.request(f"{shop.name}.outer", {"id": "a"}, wait="60s")


def test_a_broker_that_is_away_says_so(shop: Shop, rabbitmq_url: str) -> None:
    """Within the time that the caller gave; nothing was published."""
    proxy = TcpProxy("127.0.0.1", int(rabbitmq_url.rsplit(":", 1)[1].split("/", maxsplit=1)[0]))
    proxy.refuse()
    with (
        shop.publisher(through(rabbitmq_url, proxy.port)) as publisher,
        pytest.raises((BrokerUnavailable, RequestTimeout)),
    ):
        publisher.request(shop.name, {"id": "a"}, wait="500ms")
    proxy.close()
