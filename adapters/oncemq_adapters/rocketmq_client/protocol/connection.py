"""One connection: requests go out from any thread, answers come back by their ids on the connection's own thread."""

import base64
import hmac
import itertools
import select
import socket
import ssl
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from threading import Event, Lock, Thread, get_ident
from typing import Any, Final, Protocol

import structlog

from oncemq_adapters.rocketmq_client import codes
from oncemq_adapters.rocketmq_client import errors as faults
from oncemq_adapters.rocketmq_client.cluster import Cluster
from oncemq_adapters.rocketmq_client.errors import RocketMQError, RocketMQUnavailable
from oncemq_adapters.rocketmq_client.protocol.frames import (
    Frame,
    FrameReader,
    encode,
)


def signed(fields: Mapping[str, str], body: bytes, access_key: str, secret: str) -> dict[str, str]:
    """Return the fields with the account and the signature added.

    The signature is over the fields' values in the order of their names, then the body.
    """
    result = {**fields, "AccessKey": access_key}
    text = "".join([result[name] for name in sorted(result)]).encode() + body
    # The protocol's choice; it proves knowledge of a secret and hides nothing.
    digest = hmac.digest(secret.encode(), text, "sha1")
    result["Signature"] = base64.b64encode(digest).decode()
    return result


CHUNK = 1 << 18
SEND_WITHIN = 10.0
"""Seconds; a peer that takes nothing for so long has vanished."""
_WAIT = SEND_WITHIN * 1000


class Stream(Protocol):
    """A connected peer."""

    def send(self, data: bytes) -> None:
        """Send everything; safe for any number of threads."""
        ...

    def receive(self) -> bytes:
        """Return some bytes, empty when the peer has closed; for one thread."""
        ...

    def shut(self) -> None:
        """Disconnect, which wakes sending and receiving threads."""
        ...

    def release(self) -> None:
        """Give the socket back to the system; for the thread that receives, when it does so no more."""
        ...

    def fileno(self) -> int:
        """Return the socket's descriptor; -1 when it is released."""
        ...


def connect(address: str, tls: ssl.SSLContext | None, timeout: float) -> Stream:
    """Return a stream to `host:port`.

    Raises:
        OSError: it cannot be reached, or its certificate is another host's.
    """
    host, _, port = address.rpartition(":")
    raw = socket.create_connection((host.strip("[]"), int(port)), timeout)
    try:
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if tls is not None:
            return TlsStream(tls.wrap_socket(raw, server_hostname=host.strip("[]")))
    except BaseException:
        raw.close()
        raise
    return PlainStream(raw)


class PlainStream:
    """TCP: one thread may receive while others send."""

    def __init__(self, connected: socket.socket) -> None:
        connected.settimeout(SEND_WITHIN)
        self._socket = connected
        self._lock = Lock()

    def send(self, data: bytes) -> None:
        """Send everything."""
        with self._lock:
            self._socket.sendall(data)

    def receive(self) -> bytes:
        """Return some bytes; waits as long as it takes."""
        while True:
            with suppress(TimeoutError):
                return self._socket.recv(CHUNK)

    def shut(self) -> None:
        """Disconnect."""
        _shut(self._socket)

    def release(self) -> None:
        """Give the socket back to the system."""
        self._socket.close()

    def fileno(self) -> int:
        """Return the socket's descriptor."""
        return self._socket.fileno()


class TlsStream:
    """TLS: the library has one state for both directions, so no thread waits while it holds it."""

    def __init__(self, connected: ssl.SSLSocket) -> None:
        connected.setblocking(False)
        self._socket = connected
        # Not select(), which takes no descriptor above 1,023.
        self._readable, self._writable = select.poll(), select.poll()
        self._readable.register(connected, select.POLLIN)
        self._writable.register(connected, select.POLLOUT)
        self._lock = Lock()
        self._sending = Lock()

    def send(self, data: bytes) -> None:
        """Send everything."""
        left = memoryview(data)
        with self._sending:
            while left:
                try:
                    with self._lock:
                        left = left[self._socket.send(left) :]
                except ssl.SSLWantWriteError:
                    self._wait(writing=True)
                except ssl.SSLWantReadError:
                    self._wait(writing=False)

    def receive(self) -> bytes:
        """Return some bytes; waits as long as it takes."""
        while True:
            try:
                with self._lock:
                    return self._socket.recv(CHUNK)
            except ssl.SSLWantReadError:
                self._readable.poll(_WAIT)
            except ssl.SSLWantWriteError:
                self._writable.poll(_WAIT)

    def shut(self) -> None:
        """Disconnect."""
        _shut(self._socket)

    def release(self) -> None:
        """Give the socket back to the system."""
        self._socket.close()

    def fileno(self) -> int:
        """Return the socket's descriptor."""
        return self._socket.fileno()

    def _wait(self, *, writing: bool) -> None:
        if not (self._writable if writing else self._readable).poll(_WAIT):
            raise TimeoutError("the peer reads nothing")


def _shut(connected: socket.socket) -> None:
    with suppress(OSError):
        connected.shutdown(socket.SHUT_RDWR)


Fields = Mapping[str, str]
Done = Callable[[RocketMQError | None, Fields, bytes], None]
"""Called with (error or None, fields, body), once, on the connection's thread or on that of a failed request."""

Request = tuple[int, Fields, bytes, Done | None]

ANSWER_WITHIN = 5.0


class Deferred:
    """An answer that `Connection.answer` sends later."""


DEFERRED: Final = Deferred()
OnRequest = Callable[[Frame], bytes | Deferred | None]


class Connection:
    """Connected from the start; once lost it stays lost, and fails whatever waits for an answer.

    Args:
        cluster: account, TLS and time-outs.
        peer: `host:port`.
        what: how errors call the peer.
        on_request: called with the broker's requests; returns the answer's body, DEFERRED if that follows, or None where
            it is not supported.
        on_close: called when the connection is lost.

    Attributes:
        version: the peer's, known after its first answer; 0 before.

    Raises:
        RocketMQUnavailable: the peer cannot be reached.
    """

    def __init__(
        self,
        cluster: Cluster,
        peer: str,
        what: str,
        on_request: OnRequest | None = None,
        on_close: Callable[["Connection"], None] | None = None,
    ) -> None:
        self.peer = peer
        self.version = 0
        self.error: RocketMQUnavailable | None = None
        self._login = (cluster.username, cluster.password) if cluster.username else None
        self._on_request = on_request
        self._on_close = on_close
        self._waiting: dict[int, Done] = {}
        self._ids = itertools.count(1)
        self._holds_back = False
        self._held_back: list[bytes] = []
        try:
            self._stream = connect(peer, cluster.tls, cluster.connect_timeout.total_seconds())
        except (OSError, ValueError) as error:
            raise faults.unreachable(what, peer, error) from error
        self._reader = Thread(target=self._read, name=f"oncemq-rocketmq-{peer}", daemon=True)
        self._reader.start()

    @property
    def alive(self) -> bool:
        """Whether it can be used."""
        return self.error is None

    def fileno(self) -> int:
        """Return the socket's descriptor; -1 when it is released."""
        return self._stream.fileno()

    def submit(self, code: int, fields: Fields, body: bytes = b"", done: Done | None = None) -> None:
        """Send one request; without `done` no answer is wanted."""
        self.submit_all([(code, fields, body, done)])

    def submit_all(self, requests: Sequence[Request]) -> None:
        """Send requests together."""
        data = []
        for code, fields, body, done in requests:
            number = next(self._ids)
            if done is not None:
                self._waiting[number] = done
            said = signed(fields, body, *self._login) if self._login else fields
            data.append(encode(code, number, said, body, 0 if done is not None else codes.ONE_WAY))
        self._send(b"".join(data))

    def call(
        self, code: int, fields: Fields, body: bytes = b"", timeout: float = ANSWER_WITHIN
    ) -> tuple[Fields, bytes]:
        """Ask and wait for the answer; never from the connection's own thread.

        Raises:
            RocketMQError: Denied, or the connection is lost, or no answer came in time.
        """
        ready = Event()
        answer: list[Any] = []

        def done(*parts: Any) -> None:
            answer.extend(parts)
            ready.set()

        self.submit(code, fields, body, done)
        if not ready.wait(timeout):
            raise RocketMQUnavailable(f"RocketMQ at {self.peer} did not answer within {timeout:g} s")
        if answer[0] is not None:
            raise answer[0]
        return answer[1], answer[2]

    def answer(self, number: int, body: bytes) -> None:
        """Answer a request of the peer, of which DEFERRED was returned; from any thread."""
        self._send(encode(codes.SUCCESS, number, {}, body, codes.ANSWER))

    def close(self, why: BaseException | str = "closed") -> None:
        """Disconnect, and fail waiting requests."""
        if self.error is None:
            self.error = faults.lost(self.peer, why)
        self._stream.shut()
        self._fail_waiting()

    def _send(self, data: bytes) -> None:
        if get_ident() == self._reader.ident:
            self._held_back.append(data)
            if self._holds_back and self.error is None:
                return
            data = b"".join(self._held_back)
            self._held_back.clear()
        if self.error is None:
            try:
                self._stream.send(data)
            except (OSError, ValueError) as error:
                self.close(error)
        if self.error is not None:
            self._fail_waiting()

    def _fail_waiting(self) -> None:
        error = self.error or faults.lost(self.peer, "closed")
        while self._waiting:
            try:
                _, done = self._waiting.popitem()
            except KeyError:  # another thread was quicker
                return
            done(error, {}, b"")

    def _read(self) -> None:
        reader = FrameReader()
        why: BaseException | str = "closed by the broker"
        try:
            while data := self._stream.receive():
                for frame, more in _with_next(reader.feed(data)):
                    # Sending lets go of the interpreter: what came together is handled before others get it.
                    self._holds_back = more
                    self._handle(frame)
                if self._held_back:
                    self._send(b"")
        except (OSError, ValueError, RocketMQError) as error:
            why = error
        except BaseException as error:
            structlog.get_logger("oncemq").exception("reading from RocketMQ failed")
            why = error
        self.close(why)
        self._stream.release()
        if self._on_close is not None:
            self._on_close(self)

    def _handle(self, frame: Frame) -> None:
        if not frame.flag & codes.ANSWER:
            self._answer(frame)
            return
        # A broker relays answers of group members, which carry the version of the member.
        self.version = self.version or frame.version
        done = self._waiting.pop(frame.opaque, None)
        if done is not None:
            denied = None
            if frame.code != codes.SUCCESS:
                denied = faults.Denied(self.peer, frame.code, frame.remark, frame.fields)
            done(denied, frame.fields, frame.body)

    def _answer(self, frame: Frame) -> None:
        body = self._on_request(frame) if self._on_request is not None else None
        if frame.flag & codes.ONE_WAY or isinstance(body, Deferred):
            return
        code = codes.SUCCESS if body is not None else codes.NOT_SUPPORTED
        self._send(encode(code, frame.opaque, {}, body or b"", codes.ANSWER))


def _with_next(frames: Iterator[Frame]) -> Iterator[tuple[Frame, bool]]:
    """Yield each frame and whether another one is here; what comes before a malformed one, too."""
    before: Frame | None = None
    try:
        for frame in frames:
            if before is not None:
                yield before, True
            before = frame
    except RocketMQError:
        if before is not None:
            yield before, False
        raise
    if before is not None:
        yield before, False
