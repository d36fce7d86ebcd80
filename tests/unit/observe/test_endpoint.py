"""The HTTP endpoint under clients that are slow, many, or send more than a request."""

import socket
import threading
from collections.abc import Iterator
from http import HTTPStatus
from urllib.request import urlopen

import pytest

from oncemq.observe import endpoint as module
from oncemq.observe.endpoint import MOST, Address, Answer, Endpoint


@pytest.fixture
def calls() -> list[str]:
    """Return what was asked for."""
    return []


@pytest.fixture
def address(calls: list[str]) -> Iterator[tuple[str, int]]:
    """Serve one path."""

    def answer() -> Answer:
        calls.append("/healthz")
        return Answer(HTTPStatus.OK, "text/plain", b"fine")

    endpoint = Endpoint(Address("127.0.0.1", 0), {"/healthz": answer})
    yield endpoint.address.host, endpoint.address.port
    endpoint.close()


def _read_all(client: socket.socket) -> bytes:
    found = b""
    while part := client.recv(4096):
        found += part
    return found


def _threads() -> int:
    return sum("process_request_thread" in thread.name for thread in threading.enumerate())


def test_slow_clients_take_no_more_threads_than_allowed(address: tuple[str, int]) -> None:
    """While hundreds of clients say nothing, a probe is answered, and threads stay bounded."""
    slow = [socket.create_connection(address) for _ in range(100)]
    try:
        with urlopen(f"http://{address[0]}:{address[1]}/healthz", timeout=4) as answer:
            assert answer.read() == b"fine"
        assert _threads() <= 2 * MOST
    finally:
        for client in slow:
            client.close()


def test_request_that_never_ends_is_dropped(
    address: tuple[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that sends a byte now and then has no more time than one that sends nothing."""
    monkeypatch.setattr(module, "REQUEST_TIMEOUT", 0.5)
    over = threading.Event()
    with socket.create_connection(address) as client:
        client.settimeout(10)

        def drip() -> None:
            try:
                while not over.wait(0.05):
                    client.send(b"G")
            except OSError:
                return

        thread = threading.Thread(target=drip)
        thread.start()
        try:
            assert _read_all(client) == b""
        except ConnectionResetError:
            pass
        finally:
            over.set()
            thread.join()


@pytest.mark.parametrize("header", [b"Content-Length: 46\r\n", b"Transfer-Encoding: chunked\r\n", b""])
def test_body_is_never_taken_for_a_request(address: tuple[str, int], calls: list[str], header: bytes) -> None:
    """What follows a request on its connection is not answered."""
    hidden = b"GET /healthz HTTP/1.1\r\nHost: hidden\r\nA: bbbb\r\n\r\n"
    with socket.create_connection(address) as client:
        client.settimeout(10)
        client.sendall(b"GET /healthz HTTP/1.1\r\nHost: here\r\n" + header + b"\r\n" + hidden)
        answer = _read_all(client)
    assert answer.count(b"HTTP/1.1") == 1
    assert b"Connection: close" in answer
    assert calls == ["/healthz"]
