"""Counts a group's messages: ready, unacknowledged, and waiting in its retry queues."""

import base64
import json
import urllib.error
import urllib.request
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import quote

from oncemq.contracts.broker_queries import Backlog
from oncemq_adapters.rabbitmq.connection.address import Address
from oncemq_adapters.rabbitmq.topology.declare import depth_of, message_count
from oncemq_adapters.rabbitmq.topology.delays import all_steps
from oncemq_adapters.rabbitmq.topology.names import Place

_HOW = "unacknowledged messages are unknown: RabbitMQ tells them through its management API, so add management: http://host:15672 to the broker"


def backlog_of(connection: Any, place: Place, address: Address, now: datetime) -> Backlog:
    """Return the figures of a group; unacknowledged ones from the management API, if it is configured."""
    ready = sum(depth_of(connection, queue) for queue in place.queues())
    retries, first = 0, None
    for step in all_steps():
        count = sum(message_count(connection, part.retry_queue(step)) for part in place.parts())
        if count and first is None:
            first = now + timedelta(milliseconds=step)
        retries += count
    unacknowledged, unknown = None, _HOW
    if address.management:
        answers = [_unacknowledged(address.management, address, queue) for queue in place.queues()]
        known = [count for count, _ in answers if count is not None]
        unacknowledged = sum(known) if len(known) == len(answers) else None
        unknown = next((why for _, why in answers if why), "")
    return Backlog(ready, unacknowledged, retries, first, unknown)


def _unacknowledged(url: str, address: Address, queue: str) -> tuple[int | None, str]:
    path = f"/api/queues/{quote(address.virtual_host, safe='')}/{quote(queue, safe='')}"
    login = base64.b64encode(f"{address.username}:{address.password}".encode()).decode()
    asked = urllib.request.Request(  # noqa: S310 - the scheme was checked when the option was read
        url.rstrip("/") + path, headers={"Authorization": f"Basic {login}"}
    )
    try:
        with urllib.request.urlopen(asked, timeout=address.connect_timeout.total_seconds()) as answer:  # noqa: S310
            return int(json.load(answer)["messages_unacknowledged"]), ""
    except urllib.error.HTTPError as error:
        why = f"{error.code} {error.reason}"
        error.close()
    except KeyError:
        why = "it has no statistics of the queue yet"
    except (OSError, ValueError, TypeError) as error:
        why = str(getattr(error, "reason", error))
    return (
        None,
        f"unacknowledged messages are unknown: the management API at {url} does not tell them ({why})",
    )
