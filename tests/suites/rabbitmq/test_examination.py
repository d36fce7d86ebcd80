"""`check --connect` says what a real RabbitMQ lacks or has otherwise, and declares nothing."""

from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from oncemq.common.problems import Problem, Severity
from oncemq.contracts.adapter import Subscription
from oncemq.errors import BrokerRefused
from support.apps.command_line import CommandLine
from support.brokers.rabbitmq import adapter_on
from support.facts import facts_of


@pytest.fixture
def channel(rabbitmq_url: str) -> Iterator[BlockingChannel]:
    """A channel to declare things that are in the way."""
    connection = pika.BlockingConnection(pika.URLParameters(rabbitmq_url))
    yield connection.channel()
    connection.close()


def examined(url: str, name: str, **options: Any) -> Sequence[Problem]:
    """Return what is found about a consumer of topic and group `name`."""
    adapter = adapter_on(url)
    try:
        return list(adapter.examine(facts_of(name, name, options=options)))
    finally:
        adapter.close(grace=timedelta(seconds=1))


def test_a_missing_queue_of_another_owner_is_found(rabbitmq_url: str, fresh: str) -> None:
    """The line says which topic names it and what to do; where: at the option."""
    (problem,) = examined(rabbitmq_url, fresh, queue=fresh)
    assert f"the queue '{fresh}' does not exist" in problem.text
    assert "declare it, or replace queue: by exchange:" in problem.text
    assert problem.where == "topic.queue"


def test_what_a_start_makes_is_no_problem_and_is_not_made(
    rabbitmq_url: str, fresh: str, channel: BlockingChannel
) -> None:
    """Queues of the group's own need not exist; an exchange that the file names is a warning, for it may be misspelt."""
    (warned,) = examined(rabbitmq_url, fresh, exchange=fresh)
    assert (warned.where, warned.severity) == ("topic.exchange", Severity.WARNING)
    connection = channel.connection
    with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="NOT_FOUND"):
        channel.exchange_declare(fresh, passive=True)
    for queue in (f"{fresh}.{fresh}", f"{fresh}.{fresh}.dead"):
        with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="NOT_FOUND"):
            connection.channel().queue_declare(queue, passive=True)


@pytest.mark.parametrize("queue_type", ["quorum", "classic"])
def test_looking_whether_a_queue_is_a_stream_takes_no_message(
    rabbitmq_url: str, fresh: str, channel: BlockingChannel, queue_type: str
) -> None:
    """A queue of another type is no error, and its messages are not even marked as redelivered."""
    channel.queue_declare(fresh, durable=True, arguments={"x-queue-type": queue_type})
    channel.confirm_delivery()
    channel.basic_publish("", fresh, b"one")
    assert [
        problem
        for problem in examined(rabbitmq_url, fresh, queue=fresh)
        if problem.severity is Severity.ERROR
    ] == []
    method, _, body = channel.basic_get(fresh, auto_ack=True)
    assert (method.redelivered, body) == (False, b"one")


def test_a_quorum_queue_of_another_owner_may_have_a_delivery_limit(
    rabbitmq_url: str, fresh: str, channel: BlockingChannel
) -> None:
    """What a delivery limit drops cannot be seen from here: a warning says so, for quorum queues alone."""
    channel.queue_declare(fresh, durable=True, arguments={"x-queue-type": "quorum"})
    channel.queue_declare(f"{fresh}.classic", durable=True, arguments={"x-queue-type": "classic"})
    (problem,) = examined(rabbitmq_url, fresh, queue=fresh)
    assert "delivery limit" in problem.text
    assert (problem.where, problem.severity) == ("topic.queue", Severity.WARNING)
    assert examined(rabbitmq_url, fresh, queue=f"{fresh}.classic") == []


def test_a_stream_is_found(rabbitmq_url: str, fresh: str, channel: BlockingChannel) -> None:
    """What no one consumes meanwhile would be skipped: it is said before the start."""
    channel.queue_declare(fresh, durable=True, arguments={"x-queue-type": "stream"})
    (problem,) = examined(rabbitmq_url, fresh, queue=fresh)
    assert f"queue '{fresh}' is a stream, where acknowledging does not move a consumer on" in problem.text
    assert problem.where == "topic.queue"


def start_once(url: str, name: str, **options: Any) -> None:
    """Have everything made that a consumer of topic and group `name` needs."""
    adapter = adapter_on(url)
    adapter.prepare([Subscription("points", name, name, options)])
    adapter.close(grace=timedelta(seconds=1))


def test_what_a_start_has_made_is_no_problem(rabbitmq_url: str, fresh: str) -> None:
    """An app that has run once is found to be as it should be."""
    start_once(rabbitmq_url, fresh)
    assert examined(rabbitmq_url, fresh) == []


def test_a_queue_that_is_declared_differently_is_found(rabbitmq_url: str, fresh: str) -> None:
    """A classic queue in the place of a quorum queue: both are said."""
    start_once(rabbitmq_url, fresh, queue_type="classic")
    (problem,) = examined(rabbitmq_url, fresh, queue_type="quorum")
    assert "x-queue-type is 'classic', this app declares 'quorum'" in problem.text
    assert problem.where == "topic.queue_type"


def test_an_exchange_of_another_type_is_found(
    rabbitmq_url: str, fresh: str, channel: BlockingChannel
) -> None:
    """It stays as it is."""
    channel.exchange_declare(fresh, "direct", durable=True)
    (problem,) = examined(rabbitmq_url, fresh, exchange=fresh, exchange_type="fanout")
    assert "type is 'direct', this app declares 'fanout'" in problem.text
    assert examined(rabbitmq_url, fresh, exchange=fresh) == []


def test_check_connect_points_to_the_line(tmp_path: Any, rabbitmq_url: str, fresh: str) -> None:
    """File, line and column of the option, and the code of a broker that lacks something; without --connect it passes."""
    line = CommandLine(tmp_path)
    line.create_tables()
    text = line.app.read_text().replace(f"embedded:///{tmp_path}/broker.db", rabbitmq_url)
    # Two consumers of one queue would each get only some of its messages, which plain `check` refuses.
    text = text.replace('  mail: {topic: order.paid, handler: "handlers:award"}\n', "")
    line.app.write_text(text.replace("key: body.order_id,", f"queue: {fresh}, key: body.order_id,"))
    assert line.run("check").exit_code == 0
    said = line.run("check", "--connect")
    assert said.exit_code == 4
    row = 1 + next(at for at, text in enumerate(line.app.read_text().splitlines()) if "queue:" in text)
    assert f"app.yaml:{row}:" in said.stderr
    assert f"award: the queue '{fresh}' does not exist" in said.stderr
    assert "may run" not in said.stdout
    assert '"ok": false' in line.run("check", "--connect", "--json").stdout


def refused(url: str, name: str, **options: Any) -> str:
    """Return why a consumer of topic and group `name` cannot start."""
    adapter = adapter_on(url)
    try:
        with pytest.raises(BrokerRefused) as caught:
            adapter.prepare([Subscription("c", name, name, options)])
        return str(caught.value)
    finally:
        adapter.close(grace=timedelta(seconds=1))


def test_a_misspelt_exchange_is_said_with_the_name_that_exists(
    channel: BlockingChannel, rabbitmq_url: str, fresh: str
) -> None:
    """The check warns that a start would make it; with declare: false both refuse, and nothing is made."""
    channel.exchange_declare(fresh, "topic", auto_delete=False)
    try:
        (problem,) = examined(rabbitmq_url, fresh, exchange=f"{fresh}x")
        assert f"did you mean {fresh!r}?" in problem.text
        assert (problem.where, problem.severity) == ("topic.exchange", Severity.WARNING)
        found = examined(rabbitmq_url, fresh, exchange=f"{fresh}x", declare=False)
        assert [problem.severity for problem in found] == [Severity.ERROR] * 2
        assert f"did you mean {fresh!r}?" in found[0].text
        assert f"did you mean {fresh!r}?" in refused(rabbitmq_url, fresh, exchange=f"{fresh}x", declare=False)
        with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="NOT_FOUND"):
            channel.connection.channel().exchange_declare(f"{fresh}x", passive=True)
    finally:
        channel.exchange_delete(fresh)
        channel.queue_delete(f"{fresh}.{fresh}.dead")


def test_declare_missing_takes_what_exists_as_it_is(
    channel: BlockingChannel, rabbitmq_url: str, fresh: str
) -> None:
    """A queue with other arguments is refused by default, taken with `missing`, and made where there is none."""
    own = f"{fresh}.{fresh}"
    channel.queue_declare(own, durable=True, arguments={"x-max-length": 10})
    try:
        assert examined(rabbitmq_url, fresh, declare="missing") == []
        assert "x-" in examined(rabbitmq_url, fresh)[0].text
        adapter = adapter_on(rabbitmq_url)
        adapter.prepare([Subscription("c", fresh, fresh, {"declare": "missing"})])
        channel.queue_delete(own)
        adapter.prepare([Subscription("c", fresh, fresh, {"declare": "missing"})])
        adapter.close(grace=timedelta(seconds=1))
        assert channel.queue_declare(own, passive=True).method.message_count == 0
    finally:
        for queue in (own, f"{own}.dead"):
            channel.queue_delete(queue)
