"""Sends settlements so that an error which no broker raises is one message's: never its neighbours', never the thread's."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from oncemq.contracts.adapter import SettleFailed
from oncemq.errors import BrokerError
from oncemq.message.envelope import Delivery

Part = TypeVar("Part")


def send_isolated(
    send: Callable[[Sequence[Part]], Sequence[SettleFailed]], parts: Sequence[Part]
) -> Sequence[SettleFailed]:
    """Return what could not be settled: all are sent together, and each alone where that raises.

    An adapter answers with errors; what it raises besides a BrokerError was caused by something in a message that it
    did not expect. What had been settled before it raised is answered with AlreadySettled.

    Raises:
        BrokerError: the broker is away altogether.
    """
    try:
        return send(parts)
    except BrokerError:
        raise
    except Exception as error:
        if len(parts) == 1:
            return [SettleFailed(delivery_of(parts[0]), error)]
        return [failure for part in parts for failure in send_isolated(send, [part])]


def delivery_of(part: Any) -> Delivery:
    """Return the delivery that a settlement is about."""
    found: Delivery = part if isinstance(part, Delivery) else part.delivery
    return found
