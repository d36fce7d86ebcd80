"""Whether a proxy grants leases as long as ours: asked in nobody's name, for messages of a topic that is not there."""

import time
from typing import Any

from oncemq.errors import BrokerError
from oncemq_adapters.rocketmq.grpc.client import Receiver
from oncemq_adapters.rocketmq.grpc.errors import LEASE_REFUSED, SETTINGS_MISSING, surfaced
from oncemq_adapters.rocketmq.grpc.producer import NOBODYS
from oncemq_adapters.rocketmq.grpc.settings import Settings
from oncemq_adapters.rocketmq.grpc.topics import ProxiedTopic

_TRIES = 3
"""Proxies may need a moment for a client's settings, and say the same of a topic that is not there."""


class _Prober(Receiver):
    def _receive_req(self, *arguments: Any, **named: Any) -> Any:
        # A proxy looks at the lease before it looks for the topic, so nothing is ever taken.
        request = super()._receive_req(*arguments, **named)
        request.message_queue.topic.name = NOBODYS
        return request


def refused_lease(settings: Settings, topic: ProxiedTopic) -> BrokerError | None:
    """Return how the proxy refuses the lease; None if it does not.

    Args:
        settings: with the lease.
        topic: any that exists; a client without one is not served.

    Raises:
        BrokerError: the proxy cannot be asked.
    """
    prober = _Prober(settings, NOBODYS, topic)
    try:
        prober.start()
        answer = _answer(prober, settings)
    except Exception as error:
        raise surfaced(error, settings.shown) from error
    finally:
        prober.shutdown()
    return answer if getattr(answer, "code", 0) == LEASE_REFUSED else None


def _answer(prober: Receiver, settings: Settings) -> BrokerError | None:
    error = None
    for _ in range(_TRIES):
        try:
            prober.take(1)
        except Exception as raised:
            error = surfaced(raised, settings.shown)
            if getattr(error, "code", 0) != SETTINGS_MISSING:
                break
            time.sleep(0.2)
    return error
