"""How a member joins its group: whatever cannot list it any more is not waited for."""

from typing import Any

import pytest
from structlog.testing import capture_logs

from oncemq.errors import BrokerUnavailable
from oncemq_adapters.rocketmq.address import parse_address
from oncemq_adapters.rocketmq.native.member import Member

PATIENCE = 20


class Broker:
    """Lists no one, and is gone after some looks at it; as session it is the process, which ends after some, too."""

    def __init__(self, *, gone_after: int = PATIENCE, ended_after: int = PATIENCE) -> None:
        self._looks = 0
        self._gone_after = gone_after
        self._ended_after = ended_after

    def alive(self) -> dict[str, Any]:
        """Return the connections."""
        self._looks += 1
        assert self._looks < PATIENCE, "it waits for what cannot come"
        return {"b": self} if self._looks <= self._gone_after else {}

    @property
    def running(self) -> bool:
        """Whether the process lives."""
        return self._looks <= self._ended_after


def joins(broker: Any) -> None:
    """Wait for a broker that lists no one."""
    member = Member(parse_address("rocketmq://localhost", {}), "g", [], {}, "", 1, lambda *_: ())
    member._brokers = broker
    member._listed = lambda: list(broker.alive())  # type: ignore[method-assign]
    member._wait_until_listed(broker, frozenset({"b"}))


def test_lost_broker_is_not_waited_for() -> None:
    """A broker that dies before it lists a member never will: a fresh process joins when it is back."""
    with pytest.raises(BrokerUnavailable, match="was lost while it joined"):
        joins(Broker(gone_after=3))


def test_process_that_ended_is_not_waited_for() -> None:
    """The library may crash before it has joined."""
    with pytest.raises(BrokerUnavailable, match="was lost while it joined"):
        joins(Broker(ended_after=3))


def test_a_member_that_is_listed_twice_is_said_once() -> None:
    """A broker that handled a heartbeat after its connection's end gives the dead process a share of the queues."""
    member = Member(parse_address("rocketmq://localhost", {}), "g", [], {}, "", 1, lambda *_: ())
    member._brokers = Broker()  # type: ignore[assignment]
    member._generation = 1
    listed = [f"10.0.0.1@{member._instance}"]
    member._listed = lambda: listed  # type: ignore[method-assign]
    with capture_logs() as said:
        member._look()
        assert said == []
        listed += listed
        member._look()
        member._look()
    assert [(line["log_level"], line["group"]) for line in said] == [("warning", "g")]
