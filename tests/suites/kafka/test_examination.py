"""`check --connect` says what a real Kafka lacks or has configured unsafely; it makes nothing."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest

from oncemq.common.problems import Problem, Severity
from oncemq.contracts.adapter import Subscription
from oncemq_adapters.kafka import KafkaAdapter
from oncemq_adapters.kafka.address import parse_address
from oncemq_adapters.kafka.administration import Administration
from oncemq_adapters.kafka.names import place_of
from support.brokers.kafka import QUICK, adapter_on
from support.facts import facts_of


class Bench:
    """One topic's name, and an adapter that is only prepared."""

    def __init__(self, url: str) -> None:
        self.topic = f"t{uuid4().hex[:8]}"
        self.subscription = Subscription("points", self.topic, f"g{self.topic}", {})
        self.place = place_of(self.subscription)
        self.operator = Administration(parse_address(url, QUICK), "operator")
        self.adapter: KafkaAdapter = adapter_on(url, **QUICK)
        self.adapter.prepare([])

    def make_topic(self, **settings: str) -> None:
        """Make it as an operator would."""
        self.operator.create(self.topic, 1, {name.replace("_", "."): text for name, text in settings.items()})

    def make_retries(self, **settings: str) -> None:
        """Make the topic of the group's retries as it was made before."""
        self.operator.create(
            self.place.retries, 8, {name.replace("_", "."): text for name, text in settings.items()}
        )

    def examine(self, **facts: Any) -> list[Problem]:
        """Return what `check --connect` finds."""
        return list(self.adapter.examine(facts_of(self.topic, f"g{self.topic}", **facts)))


@pytest.fixture
def bench(kafka_url: str) -> Iterator[Bench]:
    """On the shared server."""
    bench = Bench(kafka_url)
    yield bench
    bench.adapter.close(grace=timedelta(seconds=1))


def test_what_fits_is_no_problem(bench: Bench) -> None:
    """An ordinary topic on one broker, and a group that has no members yet."""
    bench.make_topic()
    assert bench.examine() == []


def test_looking_makes_no_topic(bench: Bench) -> None:
    """A missing topic is no problem where the start makes it, and is not made by looking."""
    assert bench.examine() == []
    assert bench.operator.partitions(bench.topic, fresh=True) == 0
    (problem,) = bench.examine(options={"create": False})
    assert "there is no topic" in problem.text


def test_a_retention_shorter_than_the_retries_is_an_error(bench: Bench) -> None:
    """What waits behind retried messages could be removed unread."""
    bench.make_topic(retention_ms="60000")
    (problem,) = bench.examine(retry_horizon=timedelta(hours=1))
    assert problem.severity is Severity.ERROR
    assert "keeps messages for 1m" in problem.text
    assert bench.examine(retry_horizon=timedelta(seconds=50)) == []


def test_retries_that_are_removed_too_early_are_an_error(bench: Bench) -> None:
    """An existing topic of the group's retries is compared with the time that retries are kept."""
    bench.make_topic()
    bench.make_retries(retention_ms="60000")
    (problem,) = bench.examine()
    assert (problem.severity, problem.where) == (Severity.ERROR, "broker.retry_retention")
    assert "keeps retries for 1m, shorter than retry_retention (30d)" in problem.text


def test_retries_that_are_never_removed_are_told(bench: Bench) -> None:
    """Their topic would grow with each retry."""
    bench.make_topic()
    bench.make_retries(retention_ms="-1")
    (problem,) = bench.examine()
    assert (problem.severity, "it grows" in problem.text) == (Severity.WARNING, True)


def test_the_retries_have_a_retention_and_dead_letters_have_none(bench: Bench) -> None:
    """What a start makes is what a look finds in order."""
    bench.adapter.prepare([bench.subscription])
    assert bench.examine() == []
    kept = [bench.operator.settings(name)["retention.ms"] for name in (bench.place.retries, bench.place.dead)]
    assert kept == [str(30 * 24 * 60 * 60 * 1000), "-1"]


def test_a_compacted_topic_is_told(bench: Bench) -> None:
    """Compaction removes messages that were not read yet."""
    bench.make_topic(cleanup_policy="compact")
    (problem,) = bench.examine()
    assert (problem.severity, "is compacted" in problem.text) == (Severity.WARNING, True)


def test_an_unclean_election_is_told(bench: Bench) -> None:
    """Confirmed messages may be lost by it."""
    bench.make_topic(unclean_leader_election_enable="true")
    (problem,) = bench.examine()
    assert "unclean.leader.election.enable" in problem.text
