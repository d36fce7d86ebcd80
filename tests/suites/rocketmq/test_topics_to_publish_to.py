"""Topics of RocketMQ that an app only publishes to: made where that is declared, else named by `check --connect`."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from uuid import uuid4

import pytest

from oncemq.cli.preflight import connect_to_all
from oncemq.config import load
from oncemq.contracts.adapter import Confirmed, Refused
from oncemq.errors import Unroutable
from oncemq.message.envelope import OutgoingMessage
from oncemq_adapters.rocketmq import RocketMQAdapter
from support.brokers.rocketmq import adapter_on

APP = """\
app: shop
brokers: {{main: {{url: "{url}", namespace: "{name}"}}}}
database: {{url: "sqlite:///{file}"}}
topics:
  orders: {{key: body.id, strategies: [unique_key]}}
  paid: {{key: body.id, strategies: [unique_key]}}
consumers:
  count: {{topic: orders, handler: "handlers:handle"}}
"""


@pytest.fixture
def adapter(rocketmq_url: str) -> Iterator[RocketMQAdapter]:
    """A publisher, connected as the outbox connects one."""
    adapter = adapter_on(rocketmq_url, namespace=f"t{uuid4().hex[:10]}")
    adapter.prepare(())
    yield adapter
    adapter.close(grace=timedelta(seconds=1))


def test_a_missing_topic_is_made_by_the_first_message(adapter: RocketMQAdapter) -> None:
    """With `create: true` no consumer has to come first; the topic has as many queues as declared."""
    options = {"create": True, "queues": 3}
    (answer,) = adapter.publish("orders", options, [OutgoingMessage(b"x", key="k")])
    assert isinstance(answer, Confirmed)
    desk = adapter._opened_desk()
    assert len(desk.routes.ask(adapter._topic("orders", options).name).writable) == 3


def test_a_missing_topic_is_refused_where_it_is_not_declared(adapter: RocketMQAdapter) -> None:
    """A misspelt name makes no topic."""
    (answer,) = adapter.publish("ordres", {}, [OutgoingMessage(b"x")])
    assert isinstance(answer, Refused)
    assert isinstance(answer.error, Unroutable)


def test_check_names_a_missing_topic_unless_the_first_message_makes_it(adapter: RocketMQAdapter) -> None:
    """The line names the command that makes it, and the option."""
    (problem,) = adapter.examine_publishing("orders", {})
    assert "%orders' does not exist on RocketMQ" in problem.text
    assert "write create: true at topic 'orders'" in problem.text
    assert list(adapter.examine_publishing("orders", {"create": True})) == []


def test_the_command_says_it_at_the_line_of_the_topic(rocketmq_url: str, tmp_path: Path) -> None:
    """`check --connect` on an app that consumes one topic and only publishes to another."""
    file = tmp_path / "app.yaml"
    file.write_text(APP.format(url=rocketmq_url, file=tmp_path / "ledger", name=uuid4().hex[:8]))
    (tmp_path / "handlers.py").write_text("def handle(order: dict) -> None: ...\n")
    problems = connect_to_all(load([file])).problems.errors
    (problem,) = [problem for problem in problems if "topic paid:" in problem.text]
    assert "does not exist on RocketMQ" in problem.text
    assert f"{file}:6:" in str(problem)
