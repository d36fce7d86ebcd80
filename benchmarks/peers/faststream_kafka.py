"""FastStream on confluent-kafka: an empty handler; offsets committed in the background, or, with `ack`, after each message."""

import asyncio
import sys
from urllib.parse import urlsplit

from faststream import AckPolicy, FastStream
from faststream.confluent import KafkaBroker
from faststream.security import SASLPlaintext

from benchmarks.peers.counting import counter
from benchmarks.peers.environment import KAFKA, QUEUE, told
from benchmarks.stage.tables import OrderPaid


def main(policy: AckPolicy) -> None:
    """Run until told to stop."""
    url = urlsplit(told(KAFKA))
    security = SASLPlaintext(username=url.username or "", password=url.password or "", use_ssl=False)
    broker = KafkaBroker(url.netloc.rpartition("@")[2], security=security, logger=None)
    one_more = counter()

    @broker.subscriber(told(QUEUE), group_id=told(QUEUE), auto_offset_reset="earliest", ack_policy=policy)
    async def count(order: OrderPaid) -> None:  # noqa: ARG001 - it is parsed
        one_more()

    asyncio.run(FastStream(broker, logger=None).run())


if __name__ == "__main__":
    main(AckPolicy.ACK if "ack" in sys.argv[1:] else AckPolicy.ACK_FIRST)
