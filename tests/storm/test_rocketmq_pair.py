"""Two brokers and two name servers: what goes on when one of them is dead, and that nothing is lost by it."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from uuid import uuid4

import pytest

from oncemq.contracts.adapter import Confirmed, Subscription
from oncemq.message.envelope import OutgoingMessage
from oncemq.testing.recording_sink import RecordingSink
from services import ports
from services.servers.rocketmq import BROKER, NAME_SERVER, RocketMQPair
from storm.attack.nursery import Nursery
from storm.attack.stage import Settings, Stage, bodies, report, wait_for
from storm.oracle.rocketmq_reader import Reader
from support.brokers.places import Place
from support.brokers.rocketmq import adapter_on
from support.brokers.rocketmq_queues import assert_joining_broker_is_read
from support.servers import own_server

pytestmark = [pytest.mark.slow, pytest.mark.server, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def servers() -> Iterator[RocketMQPair]:
    """Servers that the tests of this file may hurt."""
    with own_server(RocketMQPair) as server:
        yield server


@pytest.fixture
def stage(servers: RocketMQPair, postgresql_database: str, fresh: str, tmp_path: Path) -> Iterator[Stage]:
    """An app on servers that all live."""
    servers.start()
    with Nursery(tmp_path) as nursery:
        yield Stage(
            Place(servers.url, postgresql_database, fresh, tmp_path),
            nursery,
            Settings(attempts=20, most="1s"),
        )


def ended(stage: Stage, name: str, expected: int, **more: object) -> None:
    """Drain, and have the oracle look."""
    wait_for(lambda: stage.applied() >= expected, "every effect", 90, pause=0.1)
    stage.drain(idle="5s")
    verdict = stage.verdict()
    report(name, verdict, **more)
    assert verdict.violations == [], f"{stage.nursery.said()}\n{verdict}"
    assert verdict.counts["applied"] == verdict.counts["effects"] == expected


def test_one_of_two_brokers_may_die(servers: RocketMQPair, stage: Stage) -> None:
    """The queues of the other go on, old and new; what the dead one has stored comes when it is back."""
    members = [stage.consumer() for _ in range(2)]
    stage.publish(bodies(400, prefix="before", twice=0.0))
    wait_for(lambda: stage.applied() >= 400, "the first effects", pause=0.1)
    assert all(Reader(servers.url).shares(stage.place.name).values()), "one broker got nothing"
    publisher = stage.publisher(stage.write(bodies(900, prefix="after", twice=0.0)), rate=100, batch=10)
    wait_for(lambda: stage.applied() > 450, "the stream to flow", pause=0.05)
    servers.kill_only(BROKER)
    stage.happened("broker killed", fired=not ports.accepts(servers.settings.ports[BROKER]))
    dead = stage.applied()
    wait_for(lambda: stage.applied() > dead + 150, "the other broker's queues to go on", pause=0.05)
    servers.start()
    assert publisher.wait(90) == 0, stage.nursery.said()
    back = wait_for(lambda: stage.applied() >= 1300, "every effect", 90, pause=0.1)
    assert [member.drain() for member in members] == [0, 0], stage.nursery.said()
    ended(stage, "one of two brokers killed", 1300, back_seconds=round(back, 1))


def test_one_of_two_name_servers_may_be_dead(servers: RocketMQPair, stage: Stage) -> None:
    """Members go on, and newcomers find topics and brokers by the other one."""
    member = stage.consumer()
    stage.publish(bodies(100, prefix="before", twice=0.0))
    wait_for(lambda: stage.applied() >= 100, "the first effects", pause=0.1)
    servers.kill_only(NAME_SERVER)
    stage.happened("name server killed", fired=not ports.accepts(servers.port))
    newcomer, known = stage.consumer(), Reader(servers.url)
    wait_for(
        lambda: any(f"@{newcomer.pid}@" in client for client in known.members(stage.group)),
        "a newcomer",
        pause=0.1,
    )
    stage.publish(bodies(400, prefix="after", twice=0.0), rate=60, batch=10)
    assert stage.applied(newcomer.pid), "the newcomer got nothing"
    wait_for(lambda: stage.applied() >= 500, "every effect", pause=0.1)
    assert [process.drain() for process in (member, newcomer)] == [0, 0], stage.nursery.said()
    ended(stage, "one of two name servers killed", 500)


def test_a_frozen_broker_keeps_no_app_from_starting(servers: RocketMQPair) -> None:
    """A member begins with the other broker's queues and is not healthy; the rest comes when the broker goes on."""
    servers.start()
    topic = f"t{uuid4().hex[:8]}"
    wanted = Subscription("c", topic, topic, {"queues": 2})
    sent = [b"%d" % number for number in range(20)]
    publisher, late, sink = adapter_on(servers.url), adapter_on(servers.url), RecordingSink()
    try:
        publisher.prepare([wanted])
        answers = publisher.publish(topic, {}, [OutgoingMessage(body, key=body.decode()) for body in sent])
        assert all(isinstance(answer, Confirmed) for answer in answers)
        servers.pause(BROKER)
        late.open([wanted], sink)
        assert sink.wait_for(1)
        (health,) = late.health()
        assert not health.subscribed
        assert health.detail
        servers.resume()
        assert sorted(delivery.message.body for delivery in sink.wait_for(len(sent))) == sorted(sent)
        wait_for(lambda: late.health()[0].subscribed, "health")
    finally:
        servers.resume()
        for adapter in (publisher, late):
            adapter.close(grace=timedelta(seconds=5))


@pytest.mark.long_form("ONCEMQ_STORM_MESSAGES")
def test_queues_of_a_joining_broker_are_read_from_their_beginning(servers: RocketMQPair) -> None:
    """With `start: last`, too: a queue that did not exist when the group began has no other last."""
    assert_joining_broker_is_read(servers, lambda: adapter_on(servers.url))
