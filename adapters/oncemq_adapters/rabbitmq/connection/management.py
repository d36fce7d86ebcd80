"""Asks RabbitMQ's management API, which tells what AMQP cannot: policies, and deliveries that are not acknowledged."""

import base64
import http.client
import json
import urllib.error
import urllib.request
from typing import Any
from urllib.parse import quote

from oncemq.errors import BrokerUnavailable
from oncemq_adapters.rabbitmq.connection.address import Address

HOW = "add management: http://host:15672 to the broker"
"""What makes the API known to OnceMQ."""


def ask(address: Address, kind: str, name: str | None = None, below: str | None = None) -> Any:
    """Return what the API says about a kind of objects of the virtual host, or about one of them.

    Args:
        address: of the broker; its management API must be configured.
        kind: such as `queues`.
        name: of the object.
        below: what is asked of it, such as `bindings`; None = the object.

    Raises:
        BrokerUnavailable: it gave no answer that can be read; the text is its reason alone.
    """
    parts = (address.virtual_host, name) if name is not None else (address.virtual_host,)
    path = "/".join(quote(part, safe="") for part in (*parts, *([below] if below else ())))
    login = base64.b64encode(f"{address.username}:{address.password}".encode()).decode()
    asked = urllib.request.Request(  # noqa: S310 - the scheme was checked when the option was read
        f"{(address.management or '').rstrip('/')}/api/{kind}/{path}",
        headers={"Authorization": f"Basic {login}"},
    )
    try:
        with urllib.request.urlopen(asked, timeout=address.connect_timeout.total_seconds()) as answer:  # noqa: S310
            return json.load(answer)
    except urllib.error.HTTPError as error:
        reason = f"{error.code} {error.reason}"
        error.close()
        raise BrokerUnavailable(reason) from None
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise BrokerUnavailable(str(getattr(error, "reason", error))) from None
