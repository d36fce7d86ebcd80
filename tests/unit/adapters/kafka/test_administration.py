"""Questions about a topic that was made a moment ago: not every broker of a cluster has heard of it."""

from concurrent.futures import Future
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from oncemq.contracts.adapter import Subscription
from oncemq.errors import BrokerUnavailable, Unroutable
from oncemq_adapters.kafka.address import parse_address
from oncemq_adapters.kafka.administration import Administration
from oncemq_adapters.kafka.names import place_of

UNKNOWN = KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART, "Broker: Unknown topic or partition")


class Partitions:
    """A topic's description."""

    partitions = (0,)


class LateBroker:
    """Stands in for the client: makes topics, but answers questions for settings only after some that it cannot answer."""

    def __init__(self, unknown: int) -> None:
        self.made: set[str] = set()
        self.asked = 0
        self._unknown = unknown

    def create_topics(self, new: Any, **_: Any) -> dict[str, Future[Any]]:
        """Make them."""
        self.made |= {topic.topic for topic in new}
        return {topic.topic: _answer(None) for topic in new}

    def describe_topics(self, asked: Any, **_: Any) -> dict[str, Future[Any]]:
        """Know what was made."""
        return {
            name: _answer(Partitions()) if name in self.made else _answer(KafkaException(UNKNOWN))
            for name in asked
        }

    def describe_configs(self, resources: Any, **_: Any) -> dict[Any, Future[Any]]:
        """Know nothing at first."""
        self.asked += 1
        found: Any = KafkaException(UNKNOWN) if self.asked <= self._unknown else {}
        return {resource: _answer(found) for resource in resources}

    def poll(self, _seconds: float) -> None:
        """Do nothing."""


def _answer(found: Any) -> Future[Any]:
    future: Future[Any] = Future()
    if isinstance(found, Exception):
        future.set_exception(found)
    else:
        future.set_result(found)
    return future


def administration(broker: LateBroker, monkeypatch: pytest.MonkeyPatch, seconds: str) -> Administration:
    """Return one that asks this broker."""
    module = "oncemq_adapters.kafka.administration"
    monkeypatch.setattr(f"{module}.AdminClient", lambda _settings: broker)
    monkeypatch.setattr(f"{module}.TopicCollection", list)
    return Administration(parse_address("kafka://one:9092", {"connect_timeout": seconds}), "tests")


def test_a_broker_that_has_not_heard_of_a_new_topic_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The start goes on when it knows the topic, and makes those of retries and dead letters."""
    broker = LateBroker(3)
    place = place_of(Subscription("c", "orders", "g", {}))
    administration(broker, monkeypatch, "60s").prepare(place)
    assert broker.made == {"orders", place.retries, place.dead}


def test_a_topic_that_no_broker_hears_of_ends_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """The wait is bounded by the time for a connection."""
    broker = LateBroker(10**9)
    with pytest.raises(Unroutable, match="orders"):
        administration(broker, monkeypatch, "100ms").prepare(place_of(Subscription("c", "orders", "g", {})))
    assert broker.asked > 1


def test_after_a_broker_did_not_answer_a_new_client_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that knew a broker that died would go on asking it, minutes after others have taken over."""
    lost = KafkaException(KafkaError(KafkaError._TIMED_OUT, "Timed out waiting for controller"))
    brokers = [_Answering(lost), _Answering({})]
    asked = Administration(parse_address("kafka://one:9092", {}), "tests")
    monkeypatch.setattr("oncemq_adapters.kafka.administration.AdminClient", lambda _settings: brokers.pop(0))
    asked.close()
    with pytest.raises(BrokerUnavailable):
        asked.settings("orders")
    assert asked.settings("orders") == {}
    assert brokers == []


class _Answering(LateBroker):
    """Has one answer for every question for settings."""

    def __init__(self, found: Any) -> None:
        super().__init__(0)
        self._found = found

    def describe_configs(self, resources: Any, **_: Any) -> dict[Any, Future[Any]]:
        """Give it; no settings is an answer, too."""
        return {resource: _answer(self._found) for resource in resources}
