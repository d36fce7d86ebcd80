"""The endpoint as a probe sees it."""

import http.client
import json
import socket
import sys
from datetime import timedelta

import pytest

from oncemq.errors import ConfigError, MissingExtra
from oncemq.observe.endpoint import Address
from oncemq.observe.monitor import Monitor
from oncemq.observe.state import AppState, ConsumerState, PauseReason, Phase
from oncemq.testing.fake_clock import FakeClock

ANY = Address("127.0.0.1", 0)


class Served:
    """A monitor whose state a test sets, and a client for it."""

    def __init__(self, address=ANY):
        self.clock = FakeClock()
        self.state = AppState(Phase.RUNNING, (ConsumerState("award", subscribed=True),))
        self.monitor = Monitor(address, self.clock, stuck_after=timedelta(seconds=10))
        self.monitor.serve(lambda: self.state)

    def ask(self, path, method="GET"):
        """Return status, body and headers of one request."""
        address = self.monitor.address
        connection = http.client.HTTPConnection(address.host, address.port, timeout=10)
        try:
            connection.request(method, path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode(), answer.headers
        finally:
            connection.close()


@pytest.fixture
def served():
    """Return a monitor that listens."""
    served = Served()
    yield served
    served.monitor.close()


def test_healthz_and_readyz_answer_200_with_json(served):
    """A healthy, ready app says so by status and body."""
    for path in ("/healthz", "/readyz?verbose=1"):
        status, body, headers = served.ask(path)
        assert (status, json.loads(body)["ok"], headers["Content-Type"]) == (200, True, "application/json")


def test_a_paused_app_is_503_at_readyz_only(served):
    """A database outage turns readyz, not healthz."""
    served.state = AppState(
        Phase.RUNNING, (ConsumerState("award", subscribed=True, paused=PauseReason.DATABASE),)
    )
    assert (served.ask("/healthz")[0], served.ask("/readyz")[0]) == (200, 503)


def test_a_stuck_consumer_is_503_at_healthz(served):
    """Messages that wait longer than `stuck_after` without progress turn healthz."""
    served.state = AppState(Phase.RUNNING, (ConsumerState("award", subscribed=True, waiting=1),))
    assert served.ask("/healthz")[0] == 200
    served.clock.advance(timedelta(seconds=11))
    assert served.ask("/healthz")[0] == 503


def test_metrics_are_served_as_prometheus_reads_them(served):
    """What the observer was told is in the exposition."""
    served.monitor.observer.crash_suspect("award", key="k", identity="i", crashes=1)
    status, body, headers = served.ask("/metrics")
    assert status == 200
    assert headers["Content-Type"].startswith("text/plain")
    assert 'oncemq_crash_suspects_total{consumer="award"} 1.0\n' in body
    assert 'oncemq_consumer_live{consumer="award"} 1.0\n' in body


def test_other_paths_are_404(served):
    """A wrong path is told the right ones."""
    status, body, _ = served.ask("/")
    assert (status, json.loads(body)) == (404, {"paths": ["/healthz", "/metrics", "/readyz", "/status"]})


def test_head_answers_without_body(served):
    """A probe may ask with HEAD."""
    status, body, _ = served.ask("/healthz", "HEAD")
    assert (status, body) == (200, "")


def test_an_error_shows_its_class_only(served):
    """A state that cannot be had is a 500 without the error's text."""

    def broken():
        raise RuntimeError("amqp://u:canary-7Q9z@h")

    monitor = Monitor(ANY, FakeClock())
    monitor.serve(broken)
    served.monitor.close()
    served.monitor = monitor
    status, body, _ = served.ask("/healthz")
    assert (status, json.loads(body)) == (500, {"ok": False, "error": "RuntimeError"})


def test_an_address_in_use_is_a_clear_error():
    """The error names the address and what to do."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        monitor = Monitor(Address("127.0.0.1", port), FakeClock())
        with pytest.raises(ConfigError) as caught:
            monitor.serve(lambda: AppState(Phase.RUNNING))
    assert str(caught.value) == (
        f"metrics and health cannot listen on 127.0.0.1:{port}: Address already in use"
        " \N{EN DASH} choose another address or free this one"
    )


def test_nothing_listens_without_an_address():
    """The endpoint is off by default."""
    monitor = Monitor(None, FakeClock())
    monitor.serve(lambda: AppState(Phase.RUNNING))
    assert monitor.address is None
    monitor.close()


def test_a_missing_package_is_said_with_the_install_line(monkeypatch):
    """Without prometheus_client an address is refused before anything starts."""
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    monkeypatch.delitem(sys.modules, "oncemq.observe.metrics", raising=False)
    with pytest.raises(MissingExtra, match=r"pip install 'oncemq\[metrics\]'"):
        Monitor(ANY, FakeClock())


def test_closing_twice_is_fine(served):
    """A shutdown may come from two sides; the port is free afterwards."""
    address = served.monitor.address
    served.monitor.close()
    served.monitor.close()
    with pytest.raises(OSError):
        socket.create_connection((address.host, address.port), timeout=1)


def test_ipv6_is_served():
    """A v6 address works, and shows itself with brackets."""
    monitor = Monitor(Address("::1", 0), FakeClock())
    monitor.serve(lambda: AppState(Phase.RUNNING))
    with socket.create_connection(("::1", monitor.address.port), timeout=5):
        assert str(monitor.address) == f"[::1]:{monitor.address.port}"
    monitor.close()
