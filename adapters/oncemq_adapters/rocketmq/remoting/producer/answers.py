"""Answers of requests, as of Java's `producer.request`: the broker pushes them to the client that waits."""

from typing import Final

from oncemq.contracts.requests import Answer
from oncemq.message.envelope import Delivery
from oncemq.message.headers import CONTENT_TYPE, FAILED
from oncemq_adapters.answers import dropped
from oncemq_adapters.rocketmq_client.producer import Reply
from oncemq_adapters.rocketmq_client.properties import CORRELATION, REQUESTER, TIME_LEFT
from oncemq_adapters.rocketmq_client.protocol import Outgoing

CLUSTER: Final = "CLUSTER"
"""The property in which a broker says to which cluster it belongs."""
KIND: Final = {"MSG_TYPE": "reply"}
REPLIES: Final = "REPLY_TOPIC"
"""The end of the name of the topic that each cluster has for answers, and that no message of others is in."""


def answer_of(delivery: Delivery, *, failed: bool) -> Outgoing | None:
    """Return the answer of a delivery; None if none is requested, or there is no way to who did, which is logged.

    It goes through the broker that the request came from: there the requester is known.

    Args:
        delivery: with its answer.
        failed: it says why the request has failed.
    """
    stored, queue = delivery.token.stored, delivery.token.queue
    asked = stored.properties
    if delivery.answer is None or not asked.get(REQUESTER) or not asked.get(CORRELATION):
        return None
    if not asked.get(CLUSTER):
        dropped(delivery, "the broker did not say its cluster", reply_to=asked[REQUESTER])
        return None
    properties = {name: asked[name] for name in (CORRELATION, REQUESTER, TIME_LEFT) if asked.get(name)}
    properties |= KIND | {CONTENT_TYPE: "application/json"} | ({FAILED: "1"} if failed else {})
    topic = f"{asked[CLUSTER]}_{REPLIES}"
    return Outgoing(topic, delivery.answer, properties, (queue.broker, 0), reply=True)


def answer_from(reply: Reply) -> Answer:
    """Return what came back for a request of ours."""
    return Answer(reply.body, failed=FAILED in reply.properties, trouble=reply.trouble)
