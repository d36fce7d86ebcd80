"""`check --connect` says what proxy and brokers lack for a consumer, each in a line that says what to do."""

from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

import pytest

from oncemq.common.problems import Problem, Severity
from oncemq.contracts.adapter import Subscription
from oncemq.testing.recording_sink import RecordingSink
from services.servers.rocketmq import RocketMQ
from support.brokers.rocketmq import adapter_on as member_on
from support.brokers.rocketmq_bench import Bench
from support.brokers.rocketmq_grpc import adapter_on
from support.facts import facts_of
from support.servers import url_from

NO_TIME = timedelta(seconds=1)


class ProxiedBench(Bench):
    """The desk, with the proxy before it."""

    def __init__(self, url: str, proxy: str) -> None:
        super().__init__(url)
        parts = urlsplit(url)
        self._url = url
        self._proxy = proxy
        self._servers = [f"{parts.hostname}:{parts.port}"]

    def examine(
        self, options: Mapping[str, Any] | None = None, broker: Mapping[str, Any] | None = None, **facts: Any
    ) -> list[Problem]:
        """Return what is found through the proxy; `broker` are its options."""
        adapter = adapter_on(self._proxy, **{"name_servers": self._servers, **(broker or {})})
        try:
            adapter.prepare(())
            return list(
                adapter.examine(facts_of(self.topic, self.group_name, options=options or {}, **facts))
            )
        finally:
            adapter.close(grace=NO_TIME)


@pytest.fixture
def bench() -> Iterator[ProxiedBench]:
    """On the shared servers."""
    bench = ProxiedBench(url_from(RocketMQ.variable), url_from(f"{RocketMQ.variable}_GRPC"))
    yield bench
    bench.close()


def test_what_fits_is_no_problem_and_looking_makes_nothing(bench: ProxiedBench) -> None:
    """A topic as a start makes it, and a group that the start will make."""
    bench.make_topic()
    assert bench.examine() == []
    assert bench.group() is None


def test_a_missing_topic_is_found(bench: ProxiedBench) -> None:
    """With name servers the topic alone; without, the group's own places must be there as well."""
    (problem,) = bench.examine({"create": False})
    assert f"topic '{bench.topic}' does not exist" in problem.text
    assert "mqadmin updateTopic" in problem.text
    found = bench.examine(broker={"name_servers": []})
    assert [problem.text.split("'")[1] for problem in found] == [
        bench.topic,
        f"%RETRY%{bench.group_name}_{bench.topic}",
        f"%DLQ%{bench.group_name}",
    ]


def test_a_topic_of_another_type_is_refused(bench: ProxiedBench) -> None:
    """A proxy takes no message in order for a plain topic, and no other type than the topic's."""
    bench.make_topic()
    (problem,) = bench.examine({"fifo": True})
    assert ("is of type NORMAL" in problem.text, problem.severity) == (True, Severity.ERROR)
    (problem,) = bench.examine({"message_type": "DELAY"})
    assert "message_type DELAY is declared" in problem.text
    assert "-a +message.type=DELAY" in problem.advice


def test_a_group_of_the_other_kind_is_refused(bench: ProxiedBench) -> None:
    """An orderly group on a plain topic would take one message at a time."""
    bench.make_topic()
    bench.make_group(consumeMessageOrderly=True)
    (problem,) = bench.examine()
    assert "is orderly, but its topic is not fifo" in problem.text
    assert problem.severity is Severity.ERROR


def test_a_retry_limit_below_the_attempts_is_found(bench: ProxiedBench) -> None:
    """RocketMQ would give up first, and no one would know why."""
    bench.make_topic()
    bench.make_group(retryMaxTimes=3)
    (problem,) = bench.examine()
    assert "gives up on a message" in problem.text
    assert f"mqadmin updateSubGroup -c <cluster> -g {bench.group_name} -r 6" in problem.advice
    assert bench.examine(attempts=3) == []


def test_members_on_the_remoting_protocol_are_found(bench: ProxiedBench) -> None:
    """They and a proxy keep their progress apart: both would get everything."""
    member = member_on(url_from(RocketMQ.variable))
    member.open([Subscription("c", bench.topic, bench.group_name)], RecordingSink())
    try:
        (problem,) = bench.examine()
    finally:
        member.close(grace=NO_TIME)
    assert "has members on the remoting protocol" in problem.text


def test_a_lease_that_the_proxy_refuses_is_found(bench: ProxiedBench) -> None:
    """The proxy's own limits count, whatever they are set to."""
    bench.make_topic()
    (problem,) = bench.examine(broker={"lease": "12h"})
    assert "the proxy grants no such lease" in problem.text
    assert problem.where == "broker.lease"
