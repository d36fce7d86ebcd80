"""An account with exactly the rights of a Java consumer's consumes, retries and buries; the broker authorizes every request."""

from collections.abc import Callable, Iterator
from datetime import timedelta
from uuid import uuid4

import pytest
from structlog.testing import capture_logs

from oncemq.common.problems import Problem, Severity
from oncemq.contracts.adapter import (
    Adapter,
    Confirmed,
    DeadLetterRequest,
    RetryRequest,
    Subscription,
)
from oncemq.message import headers as names
from oncemq.message.envelope import OutgoingMessage
from oncemq.testing.recording_sink import RecordingSink
from oncemq_adapters.rocketmq import RocketMQAdapter
from oncemq_adapters.rocketmq.remoting.producer.answers import CORRELATION, REQUESTER
from support.brokers.rocketmq import adapter_on
from support.brokers.rocketmq_bench import account_url
from support.facts import facts_of

Open = Callable[[str], tuple[RocketMQAdapter, RecordingSink]]


class Place:
    """A topic and a group that exist, with an administrator who publishes."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.topic, self.group = f"t{uuid4().hex[:8]}", f"g{uuid4().hex[:8]}"
        self.subscription = Subscription("c", self.topic, self.group, {"queues": 2})
        self.adapters: list[Adapter] = []
        self.administrator = self.adapter(url)
        self.administrator.prepare([self.subscription])

    @property
    def rights(self) -> dict[str, str]:
        """What Java's consumer needs."""
        return {f"Topic:{self.topic}": "Sub", f"Group:{self.group}": "Sub"}

    def adapter(self, url: str) -> RocketMQAdapter:
        """Return an adapter that is closed with the test."""
        adapter = adapter_on(url)
        self.adapters.append(adapter)
        return adapter

    def join(self, url: str) -> tuple[RocketMQAdapter, RecordingSink]:
        """Return a member that logs in as `url` says."""
        adapter, sink = self.adapter(url), RecordingSink()
        adapter.open([self.subscription], sink)
        return adapter, sink

    def publish(self, *bodies: bytes) -> None:
        """Publish as the administrator."""
        messages = [OutgoingMessage(body, key=body.decode()) for body in bodies]
        answers = self.administrator.publish(self.topic, {}, messages)
        assert all(isinstance(answer, Confirmed) for answer in answers), answers


@pytest.fixture
def place(rocketmq_url: str) -> Iterator[Place]:
    """On the shared server."""
    place = Place(rocketmq_url)
    yield place
    for adapter in place.adapters:
        adapter.close(grace=timedelta(seconds=5))


def test_the_rights_of_a_java_consumer_are_enough(place: Place) -> None:
    """With `Topic Sub` and `Group Sub` alone messages come, are acknowledged, come again and become dead letters."""
    adapter, sink = place.join(account_url(place.url, **place.rights))
    place.publish(b"a", b"b", b"c")
    done, later, dead = sink.wait_for(3)
    assert not adapter.acknowledge([done])
    assert not adapter.retry([RetryRequest(later, timedelta(0), {names.ATTEMPT: "2"})])
    assert not adapter.dead_letter([DeadLetterRequest(dead, {names.REASON: "rejected"})])
    again = sink.wait_for(4)[3]
    assert (again.message.body, again.message.attempt) == (later.message.body, 2)
    (letter,) = place.administrator.dead_letters(place.subscription, 10)
    assert letter.message.body == dead.message.body


def test_members_with_few_rights_hand_queues_over_without_doubles(place: Place) -> None:
    """The lock that the next owner waits for needs no right of its own."""
    url = account_url(place.url, **place.rights)
    first, received = place.join(url)
    place.publish(*[b"%d" % number for number in range(40)])
    held = received.wait_for(40)
    _, sink = place.join(url)
    assert not first.acknowledge(held)
    first.close(grace=timedelta(seconds=5))
    place.publish(b"last")
    assert sink.wait_for(1)[0].message.body == b"last"
    assert sink.bodies() == [b"last"]


@pytest.mark.parametrize("start", ["first", "last"])
def test_a_new_group_begins_without_the_right_to_query_offsets(place: Place, start: str) -> None:
    """Java's consumers may not ask for the ends of a queue either: a pull in the group's name names both."""
    place.publish(b"before")
    fresh = Subscription("c", place.topic, f"{place.group}-new", {"start": start})
    rights = {f"Topic:{place.topic}": "Sub", f"Group:{fresh.group}": "Sub"}
    adapter, sink = place.adapter(account_url(place.url, **rights)), RecordingSink()
    adapter.open([fresh], sink)
    place.publish(b"after")
    wanted = [b"before", b"after"] if start == "first" else [b"after"]
    sink.wait_for(len(wanted))
    assert sorted(sink.bodies()) == sorted(wanted)


def test_dead_letters_are_listed_and_removed_with_rights_on_their_topic(place: Place) -> None:
    """`Sub` on `%DLQ%<group>` lists and shows; `Pub` as well, for the marks, replays and purges."""
    adapter, sink = place.join(place.url)
    place.publish(b"a")
    assert not adapter.dead_letter([DeadLetterRequest(sink.wait_for(1)[0], {names.REASON: "rejected"})])
    reader = place.adapter(account_url(place.url, **place.rights, **{f"Topic:%DLQ%{place.group}": "Sub"}))
    (letter,) = reader.dead_letters(place.subscription, 10)
    assert letter.message.body == b"a"
    rights = place.rights | {f"Topic:%DLQ%{place.group}": "Sub,Pub"}
    operator = place.adapter(account_url(place.url, **rights))
    assert operator.replay_dead_letters(place.subscription, [letter.id]) == 1
    assert sink.wait_for(2)[1].message.body == b"a"
    assert not list(operator.dead_letters(place.subscription, 10))


def test_a_fifo_consumer_needs_no_further_rights(place: Place) -> None:
    """It locks queues in the name of its own group, as Java's orderly consumer does."""
    place.subscription = Subscription("c", place.topic, place.group, {"fifo": True})
    adapter, sink = place.join(account_url(place.url, **place.rights))
    place.publish(b"a")
    assert not adapter.acknowledge(sink.wait_for(1))


def findings(place: Place, **rights: str) -> list[Problem]:
    """Return what `check --connect` says to an account with these rights about consuming."""
    adapter = place.adapter(account_url(place.url, **rights))
    adapter.prepare(())
    return list(adapter.examine(facts_of(place.topic, place.group)))


def test_check_finds_nothing_wrong_with_the_rights_of_a_java_consumer(place: Place) -> None:
    """What suffices is not complained about."""
    assert findings(place, **place.rights) == []


def test_check_names_every_missing_right_and_the_command_that_grants_it(place: Place) -> None:
    """Topic and group, each alone and both; the line can be run as it stands, but for the cluster's name."""
    topic, group = place.rights
    for granted, missing in [({}, (group, topic)), ({topic: "Sub"}, (group,)), ({group: "Sub"}, (topic,))]:
        (problem,) = findings(place, **granted)
        assert problem.severity is Severity.ERROR
        assert f"may not consume {' and '.join(missing)} on broker-a" in problem.text
        assert f"-r {','.join(missing)} -a Sub -d Allow`" in problem.advice
        assert "mqadmin createAcl -c <cluster> -s User:u" in problem.advice


def test_check_is_not_satisfied_by_the_right_to_look(place: Place) -> None:
    """`Get` answers questions about a topic and a group, but consumes nothing."""
    (problem,) = findings(place, **dict.fromkeys(place.rights, "Get"))
    assert "may not consume Group:" in problem.text


def test_check_tries_to_publish_where_the_app_only_publishes(place: Place) -> None:
    """Without `Pub` a line with the command; with it nothing, and no message is stored."""
    reader = place.adapter(account_url(place.url, **place.rights))
    reader.prepare(())
    (problem,) = reader.examine_publishing(place.topic, {})
    assert f"may not publish to topic '{place.topic}' on broker-a" in problem.text
    assert f"-r Topic:{place.topic} -a Pub -d Allow`" in problem.advice
    writer = place.adapter(account_url(place.url, **{f"Topic:{place.topic}": "Pub"}))
    writer.prepare(())
    assert list(writer.examine_publishing(place.topic, {})) == []
    assert place.administrator.depth(place.subscription) == 0


def test_answers_need_no_further_right(place: Place) -> None:
    """The broker looks for the requester, which has gone here; the message is acknowledged all the same."""
    adapter, sink = place.join(account_url(place.url, **place.rights))
    asked = {REQUESTER: "127.0.0.1@gone", CORRELATION: "c"}
    place.administrator.publish(place.topic, {}, [OutgoingMessage(b"a", asked, "a")])
    (delivery,) = sink.wait_for(1)
    delivery.answer = b"1"
    with capture_logs() as lines:
        assert not adapter.acknowledge([delivery])
    assert delivery.answered == "dropped"
    assert "channel of <127.0.0.1@gone> not found" in lines[0]["reason"]


def test_requests_need_no_further_right_than_publishing(place: Place) -> None:
    """`Topic Pub` alone asks, and gets the answer that another account's consumer gives."""
    adapter, sink = place.join(place.url)
    asking = place.adapter(account_url(place.url, **{f"Topic:{place.topic}": "Pub"}))
    asking.prepare([])
    answer = asking.request(place.topic, {}, OutgoingMessage(b"a"), timedelta(seconds=20))
    (delivery,) = sink.wait_for(1)
    delivery.answer = b"1"
    assert not adapter.acknowledge([delivery])
    assert answer.result(20).body == b"1"
