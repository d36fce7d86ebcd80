"""The endpoint of a supervisor, which asks its worker processes."""

import http.client
import json
import socket
import threading
from collections.abc import Iterator

import pytest

from oncemq.errors import ConfigError
from oncemq.observe import process_group
from oncemq.observe.endpoint import Address
from oncemq.observe.monitor import Monitor
from oncemq.observe.process_group import ProcessGroup, socket_of
from oncemq.observe.state import AppState, ConsumerState, PauseReason, Phase
from oncemq.observe.worker_counts import WorkerCounts
from oncemq.testing.fake_clock import FakeClock

WELL = AppState(Phase.RUNNING, (ConsumerState("award", subscribed=True),))
PAUSED = AppState(Phase.RUNNING, (ConsumerState("award", subscribed=True, paused=PauseReason.DATABASE),))
BROKEN = AppState(Phase.RUNNING, (ConsumerState("award", subscribed=True, paused=PauseReason.STRATEGY_BUG),))


class Group:
    """A supervisor's endpoint with two workers, each of which a test may start."""

    def __init__(self):
        self.counts = WorkerCounts(2)
        self.group = ProcessGroup(Address("127.0.0.1", 0), 2, self.counts)
        self.monitors = []

    def start(self, index, state=WELL):
        """Let worker number `index` answer."""
        monitor = Monitor(socket_of(self.group.folder, index), FakeClock())
        monitor.serve(lambda: state)
        self.monitors.append(monitor)
        return monitor

    def ask(self, path):
        """Return the status and body of a request to the one address."""
        address = self.group.address
        connection = http.client.HTTPConnection(address.host, address.port, timeout=10)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()


@pytest.fixture
def group() -> Iterator[Group]:
    """Return a supervisor's endpoint whose workers do not listen yet."""
    group = Group()
    yield group
    for monitor in group.monitors:
        monitor.close()
    group.group.close()


def test_all_processes_are_ready_together(group):
    """One that starts makes the group not ready, though healthy."""
    group.start(0)
    assert (group.ask("/healthz")[0], group.ask("/readyz")[0]) == (200, 503)
    assert json.loads(group.ask("/readyz")[1])["problems"] == ["process 1 is starting, or has ended"]
    group.start(1)
    status, body = group.ask("/readyz")
    assert (status, [row["process"] for row in json.loads(body)["processes"]]) == (200, [0, 1])


def test_status_shows_the_configuration_that_runs(group):
    """Only `/status`: health does not depend on it."""
    group.group.show_configuration({"version": "1234", "last_reload": {"ok": False, "problems": ["bad"]}})
    shown = json.loads(group.ask("/status")[1])
    assert shown["configuration"] == {"version": "1234", "last_reload": {"ok": False, "problems": ["bad"]}}
    assert "configuration" not in json.loads(group.ask("/healthz")[1])


def test_a_problem_names_its_process(group):
    """A paused consumer of one process makes the group not ready, a broken one unhealthy."""
    group.start(0)
    group.start(1, PAUSED)
    assert (group.ask("/healthz")[0], group.ask("/readyz")[0]) == (200, 503)
    assert json.loads(group.ask("/readyz")[1])["problems"] == [
        "process 1: consumer award is paused (database)"
    ]
    group.start(1, BROKEN)
    assert group.ask("/healthz")[0] == 503


def test_metrics_of_all_processes_are_one_page(group):
    """Each series has the label `process`, each family is described once."""
    for index in (0, 1):
        monitor = group.start(index)
        monitor.observer.unit_done("award", {}, size=3 + index, seconds=0.01)
    status, text = group.ask("/metrics")
    assert status == 200
    lines = text.splitlines()
    assert 'oncemq_consumer_live{consumer="award",process="0"} 1.0' in lines
    assert 'oncemq_consumer_live{consumer="award",process="1"} 1.0' in lines
    assert 'oncemq_unit_messages_sum{consumer="award",process="1"} 4.0' in lines
    assert len([line for line in lines if line == "# TYPE oncemq_unit_messages histogram"]) == 1


def test_deaths_of_processes_are_counted_from_zero(group):
    """A process that has not died has a series, too, so that the first death is an increase; also while none answers."""
    group.counts.restarted(1)
    _, text = group.ask("/metrics")
    lines = text.splitlines()
    assert 'oncemq_worker_restarts_total{process="0"} 0.0' in lines
    assert 'oncemq_worker_restarts_total{process="1"} 1.0' in lines


def test_a_blocked_process_is_unhealthy(group, monkeypatch):
    """It takes the connection and does not answer: a restart would help."""
    monkeypatch.setattr(process_group, "PATIENCE", 0.2)
    group.start(0)
    with socket.socket(socket.AF_UNIX) as blocked:
        blocked.bind(socket_of(group.group.folder, 1).path)
        blocked.listen()
        assert group.ask("/healthz")[0] == 503
        assert "process 1 does not answer" in group.ask("/readyz")[1]


def test_a_process_that_ends_while_it_is_asked_is_absent(group):
    """A connection that is closed without an answer is no sign of a blocked process."""
    group.start(0)
    with socket.socket(socket.AF_UNIX) as ending:
        ending.bind(socket_of(group.group.folder, 1).path)
        ending.listen()

        def end() -> None:
            ending.accept()[0].close()

        closing = threading.Thread(target=end)
        closing.start()
        assert group.ask("/healthz")[0] == 200
        closing.join()


def test_a_restarted_process_replaces_the_socket_of_the_dead_one(group):
    """A stale file at its place is no obstacle."""
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(socket_of(group.group.folder, 0).path)
    group.start(0)
    group.start(1)
    assert group.ask("/readyz")[0] == 200


def test_an_address_in_use_is_an_error(group):
    """The supervisor says which one, and leaves no folder behind."""
    with pytest.raises(ConfigError, match="cannot listen"):
        ProcessGroup(group.group.address, 1, WorkerCounts(1))


def test_a_successor_is_asked_for_its_predecessor(group):
    """Health is the successor's from the moment when it takes over; metrics of both are shown until the first has ended."""
    for index in (0, 1, 2):
        group.start(index, PAUSED if index == 0 else WELL)
    group.group.worker_replaced(0, 2)
    assert [row["process"] for row in json.loads(group.ask("/readyz")[1])["processes"]] == [2, 1]
    assert group.ask("/readyz")[0] == 200
    assert 'oncemq_process_memory_bytes{process="0"}' in group.ask("/metrics")[1]
    group.group.worker_left(0)
    assert 'oncemq_process_memory_bytes{process="0"}' not in group.ask("/metrics")[1]
    assert 'oncemq_process_memory_bytes{process="2"}' in group.ask("/metrics")[1]


def test_recycled_processes_are_counted_from_zero(group):
    """By number, limit and success, and not among those that died."""
    group.counts.recycled(1, "memory", failed=False)
    group.counts.recycled(1, "age", failed=True)
    lines = group.ask("/metrics")[1].splitlines()
    assert 'oncemq_worker_recycles_total{failed="no",process="0",reason="memory"} 0.0' in lines
    assert 'oncemq_worker_recycles_total{failed="no",process="1",reason="memory"} 1.0' in lines
    assert 'oncemq_worker_recycles_total{failed="yes",process="1",reason="age"} 1.0' in lines
    assert 'oncemq_worker_restarts_total{process="1"} 0.0' in lines
