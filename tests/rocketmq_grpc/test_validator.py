"""Each rule of the proxy's validator, one below and one above: a message at its edge is retried and dead-lettered whole."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from oncemq.contracts.adapter import DeadLetterRequest
from oncemq.message import headers as names
from oncemq.message.envelope import Delivery, Message
from oncemq.testing.adapter_suite.bench import Bench, later
from oncemq_adapters.rocketmq_client import codes
from oncemq_adapters.rocketmq_client.properties import to_text
from oncemq_adapters.rocketmq_client.protocol import Outgoing, send_fields
from services.servers.rocketmq import RocketMQ
from support.brokers.rocketmq_grpc import ProxiedGrpc
from support.brokers.rocketmq_queues import queue_console
from support.servers import url_from

RESERVED = (
    *("TRACE_ON", "MSG_REGION", "BUYER_ID", "TRANSFER_FLAG", "CORRECTION_FLAG", "MQ2_FLAG", "POP_CK_OFFSET"),
    *("TRAN_PREPARED_QUEUE_OFFSET", "EXTEND_UNIQ_INFO", "INSTANCE_ID", "CORRELATION_ID", "REPLY_TO_CLIENT"),
    *("TTL", "ARRIVE_TIME", "PUSH_REPLY_TIME", "MSG_TYPE", "DUP_INFO", "CLUSTER"),
)
"""Names that the proxy takes from no client; brokers take them, and RocketMQ's request and reply uses five of them."""


def many(count: int) -> dict[str, str]:
    """Return so many properties."""
    return {f"p{number:03}": "v" for number in range(count)}


CASES: Mapping[str, dict[str, str]] = {
    **{f"{count} properties": many(count) for count in (99, 100, 101, 126, 127, 128, 129)},
    **{f"{size} bytes": {"long": "x" * size} for size in (14_999, 15_001, 16_383, 16_384, 16_385, 30_000)},
    "8192 letters of two bytes": {"long": "é" * 8192},
    **{
        f"character {ord(odd):#x} in a value": {"odd": f"a{odd}b"}
        for odd in "\t\n\x1f\x7f\x80\x9f\xa0\u2028 "
    },
    **{f"character {ord(odd):#x} in a name": {f"a{odd}b": "v"} for odd in "\t\n\x1f\x7f\x85\xa0\u2028 "},
    **{f"the name {name}": {name: "v"} for name in RESERVED},
    **{
        f"the tag {tag!r}": {"TAGS": tag}
        for tag in ("paid", "a|b", "|", " ", "a b", "a\nb", "\x85", "\u2028")
    },
    **{f"an id of {size}": {"UNIQ_KEY": "I" * size} for size in (199, 200, 201, 256, 1000, 1001)},
    **{f"a message group of {size}": {"__SHARDINGKEY": "g" * size} for size in (63, 64, 65)},
    **{f"a key of {size}": {"KEYS": "k" * size} for size in (64, 65, 256)},
    "a key with a control character": {"KEYS": "a\x1fb"},
}


@dataclass(frozen=True, slots=True)
class Way:
    """What came of the messages, by their bodies: first, after a retry, and as dead letters."""

    first: Mapping[bytes, Message]
    again: Mapping[bytes, Message]
    dead: Mapping[bytes, Message]
    refused: Mapping[bytes, Exception]


def by_body(deliveries: list[Delivery]) -> dict[bytes, Message]:
    """Return the messages of deliveries by their bodies."""
    return {delivery.message.body: delivery.message for delivery in deliveries}


@pytest.fixture(scope="module")
def way(rocketmq_url: str) -> Iterator[Way]:
    """Send every case over the remoting protocol, which takes it, and consume them all through the proxy."""
    harness = ProxiedGrpc(url_from(f"{RocketMQ.variable}_GRPC"), rocketmq_url, lease="60s")
    bench = Bench(harness)
    topic = bench.topic()
    subscription = bench.subscription(topic)
    member = bench.open(subscription)
    send(rocketmq_url, f"{harness.options['namespace']}%{topic.name}")
    first = bench.receive(member, len(CASES))
    failed = member.adapter.retry([later(delivery, 0) for delivery in first])
    refused = {failure.delivery.message.body: failure.error for failure in failed}
    came = member.sink.wait_for(2 * len(CASES) - len(failed), harness.patience)[len(first) :]
    failed = member.adapter.dead_letter(
        [DeadLetterRequest(delivery, {names.REASON: "rejected"}) for delivery in came]
    )
    refused |= {failure.delivery.message.body: failure.error for failure in failed}
    letters = {
        letter.message.body: letter.message for letter in member.adapter.dead_letters(subscription, 1000)
    }
    yield Way(by_body(first), by_body(came), letters, refused)
    bench.close_all()
    harness.close()


def send(url: str, topic: str) -> None:
    """Store one message of each case."""
    with queue_console(url) as console:
        for name, properties in CASES.items():
            (broker, queue), *_ = console.desk.routes.ask(topic).writable
            message = Outgoing(
                topic, name.encode(), {"UNIQ_KEY": console.desk.producer.unique_id(), **properties}
            )
            fields = send_fields("tests-validator", message, queue, 0, to_text(message.properties))
            console.desk.brokers.get(broker).call(codes.SEND_MESSAGE, fields, message.body)


def same(message: Message) -> Any:
    """Return what a copy must keep."""
    own = {name: text for name, text in message.headers.items() if not name.startswith(names.PREFIX)}
    return message.message_id, message.keys, own


@pytest.mark.parametrize("case", CASES)
def test_a_message_at_the_edge_of_a_rule_is_copied_whole(way: Way, case: str) -> None:
    """Its retry and its dead letter are taken at the first try, and have its properties, tag, keys and id."""
    body = case.encode()
    assert way.refused.get(body) is None
    assert same(way.again[body]) == same(way.first[body])
    assert same(way.dead[body]) == same(way.first[body])
