"""What an operator of RabbitMQ sees: policies hold for our queues, too, and restarts leave nothing behind."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from oncemq.common.problems import Severity
from oncemq.contracts.adapter import CONFIRMED, DeadLetterRequest, ParkedDeadLetter, Refused, Subscription
from oncemq.errors import BrokerRefused
from oncemq.message.envelope import Message, OutgoingMessage
from oncemq.testing.adapter_suite.bench import later
from oncemq.testing.recording_sink import RecordingSink
from services import catalog
from services.container import Container
from services.servers.rabbitmq import RabbitMQ
from support.brokers.rabbitmq import adapter_on, connect
from support.facts import facts_of

GRACE = timedelta(seconds=5)
TESTS = Path(__file__).parents[2]
RESTARTS = int(os.environ.get("ONCEMQ_RESTARTS", "6"))
"""Every third ends by a kill."""


@pytest.fixture(scope="module")
def limited() -> Iterator[RabbitMQ]:
    """A server whose operator keeps every queue of dead letters to three messages."""
    servers = catalog.OwnServers(catalog.FOLDER)
    server = servers.make(RabbitMQ)
    server.start()
    assert not isinstance(server, Container), "needs a RabbitMQ that is installed here, not a container"
    control(server, "set_policy", "short", r".*\.dead$", '{"max-length":3}', "--apply-to", "queues")
    yield server
    servers.remove(server)


def control(server: RabbitMQ, *arguments: str) -> str:
    """Run rabbitmqctl against a server."""
    scripts = sorted(Path("/usr/lib/rabbitmq/lib").glob("rabbitmq_server-*/sbin/rabbitmqctl"))
    program = str(scripts[-1]) if scripts else shutil.which("rabbitmqctl") or "rabbitmqctl"
    done = subprocess.run(
        [program, "-q", *arguments],
        env={"PATH": "/usr/bin:/bin:/usr/sbin:/sbin", **server.environment},
        timeout=60,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        **server.account.popen_arguments(),
    )
    return str(done.stdout)


def test_a_full_dead_letter_queue_refuses_and_drops_nothing(limited: RabbitMQ, fresh: str) -> None:
    """The letters that fit are there; the others are refused, so that the ledger keeps them."""
    subscription = Subscription("points", f"{fresh}.paid", f"{fresh}-group", {})
    adapter, sink = adapter_on(limited.url), RecordingSink()
    adapter.open([subscription], sink)
    queue = f"{fresh}-group.{fresh}.paid"
    channel = (connection := connect(limited.url)).channel()
    for number in range(5):
        channel.basic_publish("", queue, b"%d" % number)
    letters = [DeadLetterRequest(delivery, {}) for delivery in sink.wait_for(5)]
    failed = adapter.dead_letter(letters)
    parked = adapter.publish_dead_letters(
        subscription, [ParkedDeadLetter(Message(subscription.topic, b"5"), {})]
    )
    there = channel.queue_declare(f"{queue}.dead", passive=True).method.message_count
    counted = adapter.dead_letter_count(subscription)
    connection.close()
    assert [type(failure.error) for failure in failed] == [BrokerRefused] * 2
    assert there == counted == 3
    (answer,) = parked
    assert isinstance(answer, Refused)
    assert isinstance(answer.error, BrokerRefused)
    assert "accepts no more" in str(answer.error)
    adapter.acknowledge([failure.delivery for failure in failed])
    adapter.close(grace=GRACE)


@pytest.mark.parametrize("overflow", [{}, {"x-overflow": "drop-head"}])
def test_a_dead_letter_queue_of_an_older_version_is_used(
    rabbitmq_url: str, fresh: str, overflow: dict[str, str]
) -> None:
    """It cannot be changed, so it stays as it is, and `check --connect` says what to do."""
    subscription = Subscription("points", f"{fresh}.paid", f"{fresh}-group", {})
    connection = connect(rabbitmq_url)
    arguments = {"x-queue-type": "classic", **overflow}
    connection.channel().queue_declare(f"{fresh}-group.{fresh}.paid.dead", durable=True, arguments=arguments)
    connection.close()
    adapter = adapter_on(rabbitmq_url)
    adapter.open([subscription], RecordingSink())
    letter = ParkedDeadLetter(Message(subscription.topic, b"x"), {})
    assert adapter.publish_dead_letters(subscription, [letter]) == [CONFIRMED]
    problems = list(adapter.examine(facts_of(subscription.topic, subscription.group)))
    adapter.close(grace=GRACE)
    (problem,) = [problem for problem in problems if problem.where == "group"]
    assert "without overflow: reject-publish" in problem.text
    assert problem.severity is Severity.WARNING


KILLED = """
import os, sys
from oncemq.contracts.adapter import Subscription
from oncemq.testing.recording_sink import RecordingSink
from support.brokers.rabbitmq import adapter_on

fresh, sink = sys.argv[2], RecordingSink()
topic = Subscription("points", f"{fresh}.paid", f"{fresh}-group", {"partitions": 4, "queue_type": "classic"})
adapter_on(sys.argv[1]).open([topic], sink)
sink.wait_for(1)
os._exit(9)
"""


def queues(server: RabbitMQ, fresh: str) -> set[str]:
    """Return the queues of a test; those that end with a member have names of the broker's own."""
    names = control(server, "list_queues", "name").split()
    return {name for name in names if fresh in name or name.startswith("amq.")}


def test_restarts_leave_no_queue_behind(limited: RabbitMQ, fresh: str) -> None:
    """Members that end, or are killed, with retries and dead letters: the last one finds the queues that the first one made."""
    options = {"partitions": 4, "queue_type": "classic"}
    subscription = Subscription("points", f"{fresh}.paid", f"{fresh}-group", options)
    publisher, seen = adapter_on(limited.url), []
    publisher.prepare([subscription])
    for number in range(RESTARTS):
        publisher.publish(subscription.topic, options, [OutgoingMessage(b"%d" % number, key="k")])
        if number % 3 == 2:
            command = [sys.executable, "-c", KILLED, limited.url, fresh]
            environment = {**os.environ, "PYTHONPATH": str(TESTS)}
            assert subprocess.run(command, env=environment, timeout=60, check=False).returncode == 9
        adapter, sink = adapter_on(limited.url), RecordingSink()
        adapter.open([subscription], sink)
        (delivery,) = sink.wait_for(1, 30)
        assert not adapter.retry([later(delivery, 0.1)])
        *_, again = sink.wait_for(2, 30)
        # The policy has room for three letters.
        assert not (
            adapter.acknowledge([again])
            if number > 2
            else adapter.dead_letter([DeadLetterRequest(again, {})])
        )
        adapter.close(grace=GRACE)
        if number in {0, RESTARTS - 1}:
            seen.append(queues(limited, fresh))
    publisher.close(grace=GRACE)
    assert seen[-1] == seen[0]
