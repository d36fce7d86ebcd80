"""`publisher.request` on RocketMQ: a Java consumer's reply, the committed result of our own, and errors that say what is known."""

import asyncio
import json
import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

import oncemq
from oncemq import AppPublisher, NewMessage, RequestFailed, RequestTimeout
from oncemq.errors import BrokerUnavailable
from oncemq.testing.tcp_proxy import LOOPBACK, TcpProxy
from support.apps.pricing import PRICING
from support.apps.program import eventually
from support.apps.warm import WarmProgram
from support.brokers.java_peer import JavaPeer, compiled
from support.brokers.rocketmq import broker_address

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

APP = """\
app: {name}
brokers: {{main: {{url: "{url}"}}}}
database: {{url: "sqlite:///{folder}/shop.db"}}
topics:
  {name}: {{key: body.id, identity: [body.id], create: true, queues: 1, strategies: [unique_key: {{result: true}}]}}
  {name}-java: {{key: body.id, create: true, queues: 1, strategies: [none]}}
consumers:
  price: {{topic: {name}, handler: "handlers:price", reply: true, retry: {{attempts: 1}}}}
"""
RUN = ("run", "--processes", "1")


class Shop:
    """The program that answers, and publishers that ask.

    Args:
        folder: the program's.
        name: of app and topic.
        url: of the name server.
    """

    def __init__(self, folder: Path, name: str, url: str) -> None:
        self.folder, self.name, self.url = folder, name, url
        self.program = WarmProgram(folder)

    @property
    def java_topic(self) -> str:
        """The topic that Java answers."""
        return f"{self.name}-java"

    @contextmanager
    def publisher(self, addresses: str = "") -> Iterator[AppPublisher]:
        """Open a publisher of the app, with another way to the broker if given."""
        files = [self.folder / "app.yaml"]
        if addresses:
            files.append(self.folder / "other.yaml")
            files[1].write_text(f'brokers: {{main: {{url: "{self.url}", addresses: {addresses}}}}}\n')
        with oncemq.open_publisher(*files) as publisher:
            yield publisher

    @contextmanager
    def running(self) -> Iterator[None]:
        """Have the program answer."""
        with self.program.started(*RUN) as running:
            eventually(lambda: "consumer started" in running.said(), "the consumer", said=running.said)
            yield

    def effects(self) -> list[str]:
        """Return what was applied, in order."""
        with sqlite3.connect(self.folder / "shop.db") as connection:
            return [row[0] for row in connection.execute("SELECT id FROM effects ORDER BY rowid")]


@pytest.fixture
def shop(rocketmq_url: str, fresh: str, tmp_path: Path) -> Shop:
    """A consumer's files and topics."""
    (tmp_path / "app.yaml").write_text(APP.format(name=fresh, url=rocketmq_url, folder=tmp_path))
    (tmp_path / "handlers.py").write_text(PRICING)
    with sqlite3.connect(tmp_path / "shop.db") as connection:
        connection.execute("CREATE TABLE effects (id TEXT)")
    shop = Shop(tmp_path, fresh, rocketmq_url)
    shop.program.succeed("tables", "create")
    shop.program.succeed("run", "--until-idle", "100ms")
    return shop


def test_a_java_consumer_answers(shop: Shop, tmp_path: Path) -> None:
    """With `MessageUtil.createReplyMessage`; packed replies are unpacked, and Java sees who waits, and for how long."""
    with shop.publisher() as publisher, compiled(tmp_path) as classes, JavaPeer(shop.url, classes) as java:
        # Makes the topic; a message that is no request is answered by an error, which the peer takes for a retry.
        publisher.publish(shop.java_topic, {"id": "none"})
        java.order("reply", f"{shop.name}-replies", shop.java_topic)
        small = publisher.request(shop.java_topic, {"id": "a"}, wait="60s")
        packed = [
            publisher.request(shop.java_topic, {"id": packing}, wait="60s")
            for packing in ("ZLIB", "LZ4", "ZSTD")
        ]
    assert small == {"asked": {"id": "a"}, "by": "java", "text": ""}
    assert [each["text"] for each in packed] == ["x" * 20_000] * 3
    (told,) = [message.properties for message in java.received if json.loads(message.body) == {"id": "a"}]
    assert {"CORRELATION_ID", "REPLY_TO_CLIENT"} <= set(told)
    assert 0 < int(told["TTL"]) <= 60_000


def test_copies_of_a_request_get_the_committed_result(shop: Shop) -> None:
    """The same one when it is asked again with the same identity; the effect is there once."""
    with shop.running(), shop.publisher() as publisher:
        first = publisher.request(shop.name, {"id": "a"}, wait="30s")
        other = publisher.request(shop.name, {"id": "b", "size": 20_000}, wait=30)
        again = publisher.request(shop.name, {"id": "a"}, wait="30s")
    assert first == {"number": 1, "id": "a"}
    assert (other["number"], len(other["text"])) == (2, 20_000)
    assert again == first
    assert shop.effects() == ["a", "b"]


def test_threads_and_coroutines_get_their_own_answers(shop: Shop) -> None:
    """Many requests at once are not mixed up, and one publisher serves them all."""
    names = [f"n{number}" for number in range(60)]

    async def ask() -> list[Any]:
        async with oncemq.open_async_publisher(shop.folder / "app.yaml") as publisher:
            asked = [publisher.request(shop.name, {"id": name}, wait="60s") for name in names]
            return list(await asyncio.gather(*asked))

    with shop.running():
        with shop.publisher() as publisher, ThreadPoolExecutor(20) as threads:
            asked = threads.map(lambda name: publisher.request(shop.name, {"id": name}, wait="60s"), names)
            by_threads = list(asked)
        by_coroutines = asyncio.run(ask())
    assert [found["id"] for found in by_threads] == names
    assert by_coroutines == by_threads
    assert sorted(shop.effects()) == sorted(names)


def test_no_answer_says_what_is_known(shop: Shop) -> None:
    """Topic, id and that the request may still take effect; asked again it does so once, with the same answer."""
    with shop.publisher() as publisher:
        with pytest.raises(RequestTimeout, match="may still take effect") as found:
            publisher.request(shop.name, {"id": "a"}, wait="500ms", message_id="m-1")
        assert (found.value.topic, found.value.message_id) == (shop.name, "m-1")
        with shop.running():
            again = publisher.request(shop.name, {"id": "a"}, wait="30s")
    assert again == {"number": 1, "id": "a"}
    assert shop.effects() == ["a"]


def test_a_dead_letter_says_why(shop: Shop) -> None:
    """In the handler's own words where it rejects; the text of an unexpected error stays inside."""
    with shop.running(), shop.publisher() as publisher:
        with pytest.raises(RequestFailed, match="rejected: no such price") as rejected:
            publisher.request(shop.name, {"id": "a", "reject": "no such price"}, wait="60s")
        with pytest.raises(RequestFailed, match="attempts-exhausted") as failed:
            publisher.request(shop.name, {"id": "b", "fail": "s3cret"}, wait="60s")
    assert (rejected.value.reason, rejected.value.topic) == ("rejected", shop.name)
    assert "s3cret" not in str(failed.value)
    assert shop.effects() == []


def asked_again_until_answered(publisher: AppPublisher, topic: str, order: dict[str, str]) -> Any:
    """Ask as an application does: again, with the same identity, where the broker did not confirm the request."""
    answers: list[Any] = []

    def answered() -> bool:
        with suppress(BrokerUnavailable, RequestTimeout):
            answers.append(publisher.request(topic, order, wait="10s"))
        return bool(answers)

    eventually(answered, "an answer by the present connection", timeout=60)
    return answers[0]


def test_requests_go_on_after_a_lost_connection(shop: Shop) -> None:
    """The requester registers with the broker again; what waited for a broker that came back is asked again."""
    broker = broker_address(shop.url)
    with (
        TcpProxy(LOOPBACK, int(broker.rpartition(":")[2])) as door,
        shop.running(),
        shop.publisher(f'{{"{broker}": "{door.address}"}}') as publisher,
    ):
        assert publisher.request(shop.name, {"id": "a"}, wait="30s")["number"] == 1
        door.cut()
        assert asked_again_until_answered(publisher, shop.name, {"id": "b"})["number"] == 2
        door.refuse()
        with pytest.raises((BrokerUnavailable, RequestTimeout)):
            publisher.request(shop.name, {"id": "c"}, wait="1s")
        door.accept()
        assert asked_again_until_answered(publisher, shop.name, {"id": "c"})["number"] == 3
    assert shop.effects() == ["a", "b", "c"]


def test_a_closed_publisher_ends_the_wait(shop: Shop) -> None:
    """Of a request that would wait for minutes."""
    with shop.publisher() as publisher:
        asked = publisher.begin_request(shop.java_topic, NewMessage({"id": "a"}), "10m")
    with pytest.raises(BrokerUnavailable, match="may still take effect"):
        asked.result()
