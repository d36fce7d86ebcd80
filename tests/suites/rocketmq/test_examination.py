"""`check --connect` says what a real RocketMQ lacks or has otherwise, each in a line that says what to do; it makes nothing."""

from collections.abc import Iterator

import pytest

from oncemq.common.problems import Severity
from oncemq.errors import BrokerRefused
from oncemq_adapters.rocketmq.remoting.admin.broker_settings import refuse_batches
from support.brokers.rocketmq_bench import Bench


@pytest.fixture
def bench(rocketmq_url: str) -> Iterator[Bench]:
    """On the shared server."""
    bench = Bench(rocketmq_url)
    yield bench
    bench.close()


def test_a_missing_topic_is_found_unless_the_start_makes_it(bench: Bench) -> None:
    """With create: false no one makes it; the line names the command that does."""
    (problem,) = bench.examine({"create": False})
    assert f"topic '{bench.topic}' does not exist on RocketMQ" in problem.text
    assert f"mqadmin updateTopic -c <cluster> -t {bench.topic}" in problem.text
    assert (problem.where, problem.severity) == ("topic.topic_name", Severity.ERROR)
    assert bench.examine() == []
    assert bench.examine({"create": True}) == []


def test_a_misspelt_topic_is_answered_with_the_one_that_exists(bench: Bench) -> None:
    """Where the start would make it, too: nothing would ever arrive there."""
    bench.make_topic()
    meant, bench.topic = bench.topic, bench.topic.replace("t", "tt", 1)
    (made,) = bench.examine()
    assert (made.severity, made.advice) == (
        Severity.WARNING,
        f"write topic_name: {meant} if that one is meant",
    )
    (refused,) = bench.examine({"create": False})
    assert refused.text.endswith(f"did you mean '{meant}'?")


def test_looking_makes_neither_topic_nor_group(bench: Bench) -> None:
    """A broker that makes both on demand has neither afterwards."""
    assert bench.examine() == []
    assert bench.group() is None
    (problem,) = bench.examine({"create": False})
    assert "does not exist" in problem.text


def test_what_fits_is_no_problem(bench: Bench) -> None:
    """A topic and a group as a start makes them, plain and fifo."""
    bench.make_topic(fifo=True)
    bench.make_group()
    assert bench.examine({"fifo": True}) == []


def test_a_fifo_topic_of_another_type_is_found(bench: Bench) -> None:
    """Members here keep its order, but producers behind a proxy cannot: a warning with the command."""
    bench.make_topic()
    (problem,) = bench.examine({"fifo": True})
    assert "is of type NORMAL on broker-a" in problem.text
    assert "-a +message.type=FIFO" in problem.advice
    assert (problem.where, problem.severity) == ("topic.fifo", Severity.WARNING)


def test_a_topic_of_type_fifo_wants_fifo(bench: Bench) -> None:
    """Anyone who publishes in order should know that retries are overtaken."""
    bench.make_topic(fifo=True)
    (problem,) = bench.examine()
    assert "is of type FIFO on broker-a" in problem.text
    assert problem.severity is Severity.WARNING


def test_batches_do_not_come_one_by_one(bench: Bench) -> None:
    """A topic of batches is read, but not in the order of fifo: its messages come at once. Other drivers refuse it."""
    bench.make_batch_topic()
    assert bench.examine() == []
    problems = [problem for problem in bench.examine({"fifo": True}) if "queue.type=BatchCQ" in problem.text]
    assert [problem.where for problem in problems] == ["topic.fifo"]
    with pytest.raises(BrokerRefused, match="consume it with rocketmq://"):
        refuse_batches([bench.broker], bench.topic)


def test_a_group_that_is_switched_off_is_found(bench: Bench) -> None:
    """Its members would join and get nothing."""
    bench.make_topic()
    bench.make_group(consumeEnable=False)
    (problem,) = bench.examine()
    assert f"group '{bench.group_name}' is disabled on broker-a" in problem.text
    assert f"mqadmin updateSubGroup -c <cluster> -g {bench.group_name} -s true" in problem.advice


def test_a_group_without_room_for_retries_is_found(bench: Bench) -> None:
    """The broker would refuse every retry."""
    bench.make_topic()
    bench.make_group(retryQueueNums=0)
    (problem,) = bench.examine()
    assert "has no queue for its retries on broker-a" in problem.text
    assert problem.severity is Severity.ERROR
