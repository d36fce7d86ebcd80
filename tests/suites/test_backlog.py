"""What each broker tells `oncemq status` about a group's messages: ready, unacknowledged, waiting for a retry."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from oncemq.contracts.adapter import RetryRequest, Subscription
from oncemq.contracts.broker_queries import Backlog
from oncemq.message.envelope import OutgoingMessage
from oncemq.testing.recording_sink import RecordingSink
from oncemq_adapters.embedded import EmbeddedAdapter
from support.apps.program import eventually
from support.brokers import rabbitmq, rocketmq

GRACE = timedelta(seconds=5)


@pytest.fixture(
    params=[
        "embedded",
        pytest.param("rabbitmq", marks=pytest.mark.server),
        pytest.param("rocketmq", marks=pytest.mark.server),
    ]
)
def kind(request: pytest.FixtureRequest) -> str:
    """Each broker."""
    return str(request.param)


@pytest.fixture
def adapter(kind: str, request: pytest.FixtureRequest) -> Iterator[Any]:
    """An adapter of it."""
    if kind == "embedded":
        found: Any = EmbeddedAdapter.build(
            f"embedded:///{request.getfixturevalue('tmp_path')}/broker.db", {}, rocketmq.SCOPE
        )
    elif kind == "rabbitmq":
        found = rabbitmq.adapter_on(request.getfixturevalue("rabbitmq_url"))
    else:
        found = rocketmq.adapter_on(request.getfixturevalue("rocketmq_url"))
    yield found
    found.close(grace=GRACE)


@pytest.fixture
def subscription(kind: str, fresh: str) -> Subscription:
    """A group with a queue of its own, which takes 3 messages at a time where the broker counts them."""
    options = {"queues": 1} if kind == "rocketmq" else {}
    return Subscription("pay", fresh, fresh, options, in_flight=3)


@pytest.fixture
def subscription_on_rabbitmq(fresh: str) -> Subscription:
    """A group on RabbitMQ."""
    return Subscription("pay", fresh, fresh)


def test_messages_are_counted_by_what_they_wait_for(
    kind: str, adapter: Any, subscription: Subscription
) -> None:
    """Delivered ones are unacknowledged until they are settled; the others are ready, or wait for a retry."""
    sink = RecordingSink()
    adapter.open([subscription], sink)
    messages = [OutgoingMessage(b"%d" % number) for number in range(8)]
    adapter.publish(subscription.topic, subscription.options, messages)
    deliveries = sink.wait_for(3)

    def counted(wanted: Backlog) -> bool:
        found = adapter.backlog(subscription)
        return bool(replace(found, next_retry=None, unknown="") == wanted)

    # RocketMQ's pulls are not limited to what fits; RabbitMQ alone does not tell what it has delivered.
    ready, unacknowledged = {"embedded": (5, 3), "rabbitmq": (5, None), "rocketmq": (0, 8)}[kind]
    retries = None if kind == "rocketmq" else 0
    eventually(lambda: counted(Backlog(ready, unacknowledged, retries)), "8 messages")
    if kind == "rocketmq":
        return
    assert not adapter.retry([RetryRequest(deliveries[0], timedelta(minutes=5), {})])
    eventually(lambda: adapter.backlog(subscription).retries == 1, "a retry")
    assert adapter.backlog(subscription).next_retry > datetime.now(UTC) + timedelta(minutes=4)


@contextmanager
def management(code: int, answer: object) -> Iterator[tuple[str, list[str]]]:
    """Answer as RabbitMQ's management API; yields its URL, and collects what was asked."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(f"{self.path} {self.headers['Authorization']}")
            self.send_response(code)
            self.end_headers()
            self.wfile.write(json.dumps(answer).encode())

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", asked
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.server
def test_rabbitmq_tells_unacknowledged_messages_by_its_management_api(
    rabbitmq_url: str, subscription_on_rabbitmq: Subscription
) -> None:
    """It is asked for the group's queue, as the broker's user."""
    with management(200, {"messages_unacknowledged": 7}) as (url, asked):
        adapter = rabbitmq.adapter_on(rabbitmq_url, management=url)
        adapter.prepare([subscription_on_rabbitmq])
        found = adapter.backlog(subscription_on_rabbitmq)
        adapter.close(grace=GRACE)
    assert (found.unacknowledged, found.unknown) == (7, "")
    (request,) = asked
    assert request.startswith("/api/queues/%2F/")
    assert " Basic " in request


@pytest.mark.server
@pytest.mark.parametrize(("code", "answer"), [(401, {}), (200, {}), (200, []), (500, "x")])
def test_a_management_api_that_does_not_answer_hides_no_other_figure(
    rabbitmq_url: str, subscription_on_rabbitmq: Subscription, code: int, answer: object
) -> None:
    """The other figures are there, and it is said why one is missing."""
    with management(code, answer) as (url, _):
        adapter = rabbitmq.adapter_on(rabbitmq_url, management=url)
        adapter.prepare([subscription_on_rabbitmq])
        found = adapter.backlog(subscription_on_rabbitmq)
        adapter.close(grace=GRACE)
    assert (found.ready, found.unacknowledged, found.retries) == (0, None, 0)
    assert "does not tell them" in found.unknown
