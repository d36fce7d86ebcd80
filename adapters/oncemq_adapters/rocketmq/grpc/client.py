"""The package's own clients, with what they lack: trust in private authorities, addresses behind forwarding, messages whole.

Everything here that begins with an underscore of theirs is marked; nothing else of the package is touched elsewhere.
"""

import asyncio
import logging
import math
import time
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import grpc
import structlog
from rocketmq import ClientConfiguration, Credentials, FilterExpression, Producer, SimpleConsumer
from rocketmq.grpc_protocol import FilterType, MessagingServiceStub
from rocketmq.v5.client.connection import RpcChannel, RpcClient, RpcEndpoints

from oncemq_adapters.rocketmq.grpc.errors import ProxyUnable, insist, surfaced
from oncemq_adapters.rocketmq.grpc.requests import Consumed, consumed, route_request
from oncemq_adapters.rocketmq.grpc.settings import Settings
from oncemq_adapters.rocketmq.grpc.topics import ProxiedTopic

MARGIN = timedelta(seconds=2)
"""By how much a proxy's lease is longer than what we claim of it: for its way to us, and for ours when we settle.

A lease of one second was seen never to end; those of three and more always did.
"""

ALONE_FOR = 120.0
"""Seconds for which messages are asked for one by one after a proxy broke off."""

_NO_LIMIT = -1
_CHANNEL = (
    ("grpc.enable_retries", 0),
    ("grpc.max_send_message_length", _NO_LIMIT),
    ("grpc.max_receive_message_length", _NO_LIMIT),
    ("grpc.use_local_subchannel_pool", 1),
    # A proxy that was away is tried again soon, not after minutes.
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.max_reconnect_backoff_ms", 2000),
)


class Channel(RpcChannel):  # type: ignore[misc]
    """A connection that trusts the configured authorities; the package's own knows only the public ones."""

    def __init__(self, endpoints: RpcEndpoints, settings: Settings) -> None:
        super().__init__(endpoints, settings.tls)
        self._settings = settings
        self._target = endpoints.facade

    def create_channel(self, loop: asyncio.AbstractEventLoop) -> None:
        """Connect when first needed; to be called in the thread of the loop."""
        asyncio.set_event_loop(loop)
        if self._settings.tls:
            credentials = grpc.ssl_channel_credentials(self._settings.authorities)
            channel = grpc.aio.secure_channel(self._target, credentials, _CHANNEL)
        else:
            channel = grpc.aio.insecure_channel(self._target, _CHANNEL)
        self._RpcChannel__async_channel = channel
        self._RpcChannel__async_stub = MessagingServiceStub(channel)


class Channels(RpcClient):  # type: ignore[misc]
    """Connections to proxies, each reached where the settings say."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings.tls)
        self._settings = settings

    def retrieve_or_create_channel(self, endpoints: RpcEndpoints) -> RpcChannel:
        """Return the connection to these endpoints; in the thread of the loop, so never made twice."""
        known = self.channels.get(endpoints)
        if known is None:
            known = Channel(self._reached(endpoints), self._settings)
            known.create_channel(RpcClient.get_channel_io_loop())
            self.channels.put(endpoints, known)
        known.update_time = int(time.time())
        return known

    def _reached(self, endpoints: RpcEndpoints) -> RpcEndpoints:
        told = [f"{address.host}:{address.port}" for address in endpoints.endpoints.addresses]
        reached = [self._settings.addresses.get(address, address) for address in told]
        return endpoints if reached == told else _configuration(self._settings, reached).rpc_endpoints


class Receiver(SimpleConsumer):  # type: ignore[misc]
    """A SimpleConsumer of one topic that returns messages as they came: the package's own loses the order of their keys."""

    def __init__(self, settings: Settings, group: str, topic: ProxiedTopic) -> None:
        super().__init__(
            _configuration(settings),
            group,
            {topic.name: _expression(topic)},
            await_duration=math.ceil(settings.poll.total_seconds()),
            tls_enable=settings.tls,
        )
        self._Client__rpc_client = Channels(settings)
        self._topic = topic.name
        self._where = settings.shown
        self._alone_until = 0.0
        self._poll = settings.poll
        self._lease = round((settings.lease + MARGIN).total_seconds())

    def start(self) -> None:
        """Connect, and wait until the proxy has taken the settings, without which it delivers nothing.

        Raises:
            Exception: it cannot be reached, or refuses; whatever the package raises.
        """
        ask_route(self, self._topic)
        self.startup()
        self._init_settings_event.wait(self.client_configuration.request_timeout)

    def take(self, most: int) -> Sequence[Any]:
        """Return up to `most` messages, each with `endpoints` where it is settled; none if none came in time."""
        alone = time.monotonic() < self._alone_until
        taken: Sequence[Any] = self.receive(1 if alone else most, self._lease)
        return taken

    def _receive_req(self, *arguments: Any, **named: Any) -> Any:
        """Add what the package's own request has not: parts of a second."""
        request = super()._receive_req(*arguments, **named)
        request.long_polling_timeout.FromTimedelta(self._poll)
        return request

    async def _receive_coroutine(self, queue: Any, req: Any, timeout: float) -> Sequence[Any]:  # noqa: ASYNC109 - theirs
        """Replace the package's, which every receive ends in."""
        call = await self.rpc_client.receive_message(
            queue.endpoints, req, metadata=self.sign(), timeout=timeout
        )
        parts: list[Any] = []
        broken_off: Exception | None = None
        try:
            async for part in call:
                parts.append(part)  # noqa: PERF401 - what came before an error counts
        except Exception as error:
            broken_off = error
        try:
            found = consumed(parts, queue.endpoints, broken_off)
        except ProxyUnable as error:
            if error.about_a_message:
                self._note_broken(Consumed([], error))
            raise
        if found.broken_off is not None:
            self._note_broken(found)
        return found.messages

    def _note_broken(self, found: Consumed) -> None:
        """Say that a proxy broke off, and ask for one message at a time: what breaks it then hides no other."""
        self._alone_until = time.monotonic() + ALONE_FOR
        structlog.get_logger("oncemq").warning(
            "RocketMQ's proxy aborted a delivery; the messages behind it are invisible for one lease",
            topic=self._topic,
            delivered=len(found.messages),
            error=str(surfaced(found.broken_off or Exception(), self._where)),
        )


class Sender(Producer):  # type: ignore[misc]
    """A Producer for its connection and its signatures."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(_configuration(settings), tls_enable=settings.tls)
        self._Client__rpc_client = Channels(settings)


def ask_route(client: Any, topic: str) -> None:
    """Insist that a topic exists and we are welcome; the package only writes such failures into its log."""
    request = route_request(client.client_configuration.rpc_endpoints.endpoints, topic)
    answer = client.rpc_client.query_topic_route_async(
        client.client_configuration.rpc_endpoints,
        request,
        metadata=client.sign(),
        timeout=client.client_configuration.request_timeout,
    ).result()
    insist(answer.status)


def hush() -> None:
    """Keep the package from writing to standard error and into a file in the home folder."""
    logging.getLogger("concurrent.futures").setLevel(logging.CRITICAL)
    own = logging.getLogger("rocketmq-python-client")
    for handler in list(own.handlers):
        own.removeHandler(handler)
        handler.close()
    own.addHandler(logging.NullHandler())


def _configuration(settings: Settings, endpoints: Sequence[str] = ()) -> ClientConfiguration:
    return ClientConfiguration(
        ";".join(endpoints or settings.endpoints),
        Credentials(settings.username, settings.password),
        request_timeout=round(settings.connect_timeout.total_seconds()),
    )


def _expression(topic: ProxiedTopic) -> FilterExpression:
    if topic.filter:
        return FilterExpression(topic.filter, FilterType.SQL)
    return FilterExpression(topic.options.selection.text)
