"""RocketMQ on librocketmq under the adapter suite: its proxies stand where the name server says that the broker is."""

import socket
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

from oncemq.testing.tcp_proxy import LOOPBACK, TcpProxy
from oncemq_adapters.rocketmq.native import NativeRocketMQAdapter
from support.brokers.rocketmq import TwoDoors, broker_address, through


class RewritingProxy(TcpProxy):
    """A proxy before a name server that tells another address of the broker, of the same length.

    librocketmq goes to the addresses that it is told; it cannot be given others.
    """

    def __init__(self, host: str, port: int, told: str, instead: str) -> None:
        if len(told) != len(instead):
            raise ValueError(f"{told} and {instead} differ in length, which stands in front of an answer")
        self._pair = told.encode(), instead.encode()
        super().__init__(host, port)

    def changed(self, data: bytes) -> bytes:
        """Return what clients get instead of this."""
        return data.replace(*self._pair)


def proxy_of_length(host: str, port: int) -> TcpProxy:
    """Return a proxy whose port has as many digits as the server's."""
    while True:
        proxy = TcpProxy(host, port)
        if len(str(proxy.port)) == len(str(port)):
            return proxy
        proxy.close()


class ProxiedNativeRocketMQ(TwoDoors):
    """RocketMQ by librocketmq, which believes whatever the name server tells."""

    adapter_class = NativeRocketMQAdapter
    # A cut in the moment of a heartbeat: the broker handles it after the end of its connection, and lists for two minutes a
    # member that is gone (147 of 150 clients that said their heartbeat and left; all were gone after 116 to 126 s).
    patience = 150.0

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        told = broker_address(url)
        self.broker = proxy_of_length(LOOPBACK, int(told.rpartition(":")[2]))
        self.names = RewritingProxy(LOOPBACK, parts.port or 9876, told, self.broker.address)
        self.url = through(url, self.names.port)
        self.options: Mapping[str, Any] = {
            "namespace": f"t{uuid4().hex[:10]}",
            "publish_timeout": "2s",
            "connect_timeout": "1s",
            # The suite leaves hundreds of messages unsettled; each pulled batch keeps a thread of the library waiting.
            "threads": 256,
        }
        self.secret = parts.password or ""
        with socket.socket() as closed:
            closed.bind((LOOPBACK, 0))
            self.closed_port = int(closed.getsockname()[1])
        self.address = f"{LOOPBACK}:{self.closed_port}"
