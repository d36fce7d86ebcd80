"""Whether a member of a group counts as healthy, by what its client tells."""

import json
from typing import Any

import pytest
from confluent_kafka import KafkaError

from oncemq_adapters.kafka import progress
from oncemq_adapters.kafka.progress import STALLED, Progress
from oncemq_adapters.kafka.tracker import PartitionTracker

KEY = ("orders", 3)


class Clock:
    """A clock that stands until it is moved."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Replace the clock of the module."""
    clock = Clock()
    monkeypatch.setattr(progress, "monotonic", clock)
    return clock


def told(end: int = 10, coordinator: str = "UP", state: str = "steady") -> str:
    """Return statistics as librdkafka tells them."""
    found: dict[str, Any] = {
        "brokers": {"GroupCoordinator": {"state": coordinator}},
        "cgrp": {"join_state": state},
        "topics": {"orders": {"partitions": {"3": {"ls_offset": end}}}},
    }
    return json.dumps(found)


def member(position: int) -> tuple[Progress, dict[tuple[str, int], PartitionTracker]]:
    """Return the progress of a member that has joined, and its only partition."""
    found = Progress("consumer")
    found.assigned()
    return found, {KEY: PartitionTracker(None, *KEY, 1, position)}


def test_a_position_that_stands_before_its_end_is_unhealthy(clock: Clock) -> None:
    """Assigned and connected is not enough: the row names the partition."""
    found, trackers = member(7)
    found.statistics(told(10), trackers, ())
    clock.now += STALLED + 1
    found.statistics(told(10), trackers, ())
    assert "partition 3 of orders stands at 7" in found.health().detail
    trackers[KEY].next = 10
    found.statistics(told(10), trackers, ())
    assert found.health().subscribed


def test_a_partition_that_is_paused_on_purpose_is_healthy(clock: Clock) -> None:
    """Back-pressure is no trouble."""
    found, trackers = member(7)
    for _ in range(2):
        found.statistics(told(10), trackers, (KEY,))
        clock.now += STALLED + 1
    found.statistics(told(10), trackers, (KEY,))
    assert found.health().subscribed


def test_a_group_without_its_coordinator_is_unhealthy(clock: Clock) -> None:
    """It is healthy again when the coordinator is connected and the group is steady."""
    del clock
    found, trackers = member(10)
    found.statistics(told(coordinator="DOWN"), trackers, ())
    assert "coordinator is not connected" in found.health().detail
    found.statistics(told(state="wait-join"), trackers, ())
    assert not found.health().subscribed
    found.statistics(told(), trackers, ())
    assert found.health().subscribed


def test_brokers_that_are_all_away_are_told_at_once(clock: Clock) -> None:
    """Without waiting for the next statistics."""
    del clock
    found, _ = member(10)
    found.error(KafkaError(KafkaError._ALL_BROKERS_DOWN))
    assert not found.health().subscribed


def test_a_login_that_is_refused_is_told_until_the_group_is_steady(clock: Clock) -> None:
    """That all brokers are away then only follows from it, and does not hide it."""
    del clock
    found, trackers = member(10)
    found.error(KafkaError(KafkaError._AUTHENTICATION, "wrong password"))
    found.error(KafkaError(KafkaError._ALL_BROKERS_DOWN))
    found.statistics(told(coordinator="DOWN"), trackers, ())
    assert found.health().detail == found.refused
    assert "wrong password" in found.refused
    found.statistics(told(), trackers, ())
    assert (found.health().subscribed, found.refused) == (True, "")


def test_a_thread_that_tells_nothing_any_more_is_unhealthy(clock: Clock) -> None:
    """Polling serves the statistics; silence means that nothing polls."""
    found, _ = member(10)
    clock.now += 11
    assert "stuck" in found.health().detail


def test_the_lag_is_the_way_to_the_end(clock: Clock) -> None:
    """Of each partition."""
    del clock
    found, trackers = member(7)
    found.statistics(told(10), trackers, ())
    assert found.lag == {KEY: 3}
