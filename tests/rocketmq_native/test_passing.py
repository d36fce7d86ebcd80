"""librocketmq and the broker agree on which message is which, so that callbacks of finished ones pass, and all return."""

import pytest

from oncemq.testing.adapter_suite.bench import Bench, Member, later, numbered
from oncemq_adapters.librocketmq.frames import Identity
from oncemq_adapters.rocketmq.native.session import Session
from support.apps.subscribed_routes import assert_only_routed_messages_arrive

MESSAGES = 400


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Identity]:
    """Return a list of the messages whose callbacks ask, which grows."""
    found: list[Identity] = []
    original = Session._on_message

    def on_message(session: Session, identity: Identity) -> None:
        found.append(identity)
        original(session, identity)

    monkeypatch.setattr(Session, "_on_message", on_message)
    return found


def _acknowledge(bench: Bench, member: Member, settled: int, count: int) -> None:
    while settled < count:
        got = member.sink.wait_for(settled + 1, bench.harness.patience)[settled:]
        bench.settled(member.adapter.acknowledge(got))
        settled += len(got)


def test_most_finished_messages_pass_without_asking(bench: Bench, asked: list[Identity]) -> None:
    """What is read ahead and settled is let through when its callback comes, and the group ends at the end."""
    topic = bench.topic()
    subscription = bench.subscription(topic)
    bench.prepare(subscription)
    bench.publish(topic, *numbered(MESSAGES))
    member = bench.open(subscription)
    _acknowledge(bench, member, 0, MESSAGES)
    # librocketmq alone tells the broker here, and only of messages whose callbacks have returned.
    bench.eventually(lambda: member.adapter.depth(subscription) == 0, "the group to have finished all")
    assert 0 < len(asked) < MESSAGES // 2


def test_callbacks_of_retries_return(bench: Bench, asked: list[Identity]) -> None:
    """A retry is let through by the name that librocketmq's process has for it."""
    topic = bench.topic()
    subscription = bench.subscription(topic)
    member = bench.open(subscription)
    bench.publish(topic, b"one")
    (first,) = bench.receive(member, 1)
    bench.settled(member.adapter.retry([later(first, 0)]))
    _acknowledge(bench, member, 1, 2)
    bench.eventually(lambda: member.adapter.depth(subscription) == 0, "the group to have finished all")
    assert [topic for topic, *_ in asked][-1] == ""


def test_routes_alone_are_subscribed_to(bench: Bench, rocketmq_native_url: str) -> None:
    """`otherwise: unsubscribed` has librocketmq subscribe to the tags of the routes."""
    assert_only_routed_messages_arrive(bench, rocketmq_native_url)
