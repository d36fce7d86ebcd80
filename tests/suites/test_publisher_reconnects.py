"""A publisher outside of handlers outlives its connections: each message that it reports as confirmed arrives."""

import multiprocessing
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from oncemq import App, AppPublisher, NewMessage, PartlyPublished
from oncemq.errors import BrokerUnavailable
from support.apps.program import eventually
from support.brokers.rabbitmq import ProxiedRabbitMQ
from support.brokers.rocketmq import ProxiedRocketMQ

pytestmark = [pytest.mark.server, pytest.mark.timeout(180)]

Harness = ProxiedRabbitMQ | ProxiedRocketMQ
MANY = 3000


@pytest.fixture(params=["rabbitmq", "rocketmq"])
def harness(request: pytest.FixtureRequest) -> Iterator[Harness]:
    """Each broker behind a proxy that cuts and refuses."""
    url = str(request.getfixturevalue(f"{request.param}_url"))
    harness: Harness = ProxiedRabbitMQ(url, {}) if request.param == "rabbitmq" else ProxiedRocketMQ(url)
    yield harness
    if isinstance(harness, ProxiedRabbitMQ):
        harness.proxy.close()
    else:
        harness.close()


@pytest.fixture
def received() -> Counter[str]:
    """How often each order was received."""
    return Counter()


@pytest.fixture
def app(harness: Harness, fresh: str, received: Counter[str]) -> App:
    """An app whose consumer has its place at the broker."""
    app = App(fresh, brokers={"main": {"url": harness.url, **harness.options}})
    app.topic(fresh, key="body.id", strategies=["none"])

    @app.consumer(topic=fresh, effects="external")
    def receive(body: dict) -> None:
        received[body["id"]] += 1

    app.run(until_idle="0.1s")
    return app


@pytest.fixture
def publisher(app: App, fresh: str) -> Iterator[AppPublisher]:
    """A publisher that has published."""
    with app.publisher() as publisher:
        publisher.publish(fresh, {"id": "first"})
        yield publisher


def confirmed(publisher: AppPublisher, topic: str, name: str) -> str:
    """Publish until it is confirmed, as a caller does."""

    def tried() -> bool:
        try:
            publisher.publish(topic, {"id": name})
        except BrokerUnavailable:
            return False
        return True

    eventually(tried, f"a confirmation of {name}", timeout=60)
    return name


def unconfirmed(publisher: AppPublisher, topic: str, names: list[str]) -> list[str]:
    """Publish many; return those that are not confirmed."""
    try:
        publisher.publish_many(topic, [NewMessage({"id": name}, message_id=name) for name in names])
    except PartlyPublished as error:
        return [names[position] for position in error.errors]
    return []


def test_a_cut_connection_is_made_again(
    app: App, publisher: AppPublisher, harness: Harness, received: Counter[str], fresh: str
) -> None:
    """After a cut the same publisher publishes again."""
    harness.cut()
    confirmed(publisher, fresh, "second")
    app.run(until_idle="1s")
    assert set(received) == {"first", "second"}


def test_an_outage_is_reported_and_survived(
    app: App, publisher: AppPublisher, harness: Harness, received: Counter[str], fresh: str
) -> None:
    """While the broker is away nothing is confirmed; afterwards the same publisher publishes again."""
    harness.stop()
    with pytest.raises(BrokerUnavailable):
        publisher.publish(fresh, {"id": "lost"})
    assert unconfirmed(publisher, fresh, ["lost-1", "lost-2"]) == ["lost-1", "lost-2"]
    harness.start()
    confirmed(publisher, fresh, "second")
    app.run(until_idle="1s")
    assert set(received) >= {"first", "second"}


def test_a_cut_among_many_loses_none_that_is_confirmed(
    app: App, publisher: AppPublisher, harness: Harness, received: Counter[str], fresh: str
) -> None:
    """The unconfirmed ones are named; published again, all are there."""
    names = [f"order-{number}" for number in range(MANY)]
    proxy = harness.proxy if isinstance(harness, ProxiedRabbitMQ) else harness.broker
    proxy.lose_answers()
    with ThreadPoolExecutor(1) as pool:
        published = pool.submit(unconfirmed, publisher, fresh, names)
        eventually(lambda: proxy.answers_lost > 0, "a lost answer", timeout=60)
        harness.cut()
        missing = published.result()
    assert missing
    app.run(until_idle="1s")
    assert set(received) >= {"first", *names} - set(missing)
    eventually(lambda: unconfirmed(publisher, fresh, missing) == [], "all confirmed", timeout=60)
    app.run(until_idle="1s")
    assert set(received) == {"first", *names}


def test_threads_share_a_publisher_over_a_cut(
    app: App, publisher: AppPublisher, harness: Harness, received: Counter[str], fresh: str
) -> None:
    """Eight threads publish while the connection is cut; each confirmed message is there."""
    started = threading.Barrier(9)

    def publish(thread: int) -> list[str]:
        started.wait()
        return [confirmed(publisher, fresh, f"{thread}-{number}") for number in range(20)]

    with ThreadPoolExecutor(8) as pool:
        results = [pool.submit(publish, thread) for thread in range(8)]
        started.wait()
        harness.cut()
        names = {name for result in results for name in result.result()}
    app.run(until_idle="1s")
    assert set(received) == {"first", *names}


def test_a_forked_process_has_a_connection_of_its_own(
    app: App, publisher: AppPublisher, received: Counter[str], fresh: str
) -> None:
    """Parent and child publish after a fork, each message once."""
    child = multiprocessing.get_context("fork").Process(target=_publish_in_child, args=(publisher, fresh))
    child.start()
    child.join(60)
    assert child.exitcode == 0
    publisher.publish(fresh, {"id": "parent"})
    app.run(until_idle="1s")
    assert received == Counter({"first": 1, "child": 1, "parent": 1})


def _publish_in_child(publisher: AppPublisher, topic: str) -> None:
    publisher.publish(topic, {"id": "child"})
    publisher.close()
