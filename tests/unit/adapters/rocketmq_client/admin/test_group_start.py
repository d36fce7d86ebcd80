"""Where a group begins in queues of a broker that joins while it runs: at their beginning, whatever its `start` says."""

from typing import Any

import pytest

from oncemq_adapters.rocketmq_client import codes
from oncemq_adapters.rocketmq_client.admin import group_start
from oncemq_adapters.rocketmq_client.admin.group_start import begin_group
from oncemq_adapters.rocketmq_client.errors import Denied
from oncemq_adapters.rocketmq_client.names import FIRST, LAST

NEWEST = 50


class Broker:
    """Answers for its queues, each of which holds fifty messages."""

    def __init__(self, *, knows_group: bool = True) -> None:
        self.committed: dict[int, int] = {}
        self.knows_group = knows_group

    def call(self, code: int, fields: dict[str, str]) -> tuple[dict[str, str], bytes]:
        """Answer as a broker does."""
        number = int(fields["queueId"])
        if code == codes.MIN_OFFSET:
            return {"offset": "0"}, b""
        if code == codes.MAX_OFFSET:
            return {"offset": str(NEWEST)}, b""
        if not self.knows_group:
            raise Denied("first", codes.NO_GROUP, "no such group", {})
        if code == codes.QUERY_OFFSET:
            if number not in self.committed:
                raise Denied("first", codes.QUERY_NOT_FOUND, "not found", {})
            return {"offset": str(self.committed[number])}, b""
        self.committed[number] = int(fields["commitOffset"])
        return {}, b""


class Brokers(dict[str, Broker]):
    """By name."""

    def get(self, name: str) -> Any:  # type: ignore[override]
        """Return one."""
        return self[name]


def begin(brokers: Brokers, start: str) -> None:
    """Begin in two queues of each broker."""
    places = [(name, number) for name in brokers for number in range(2)]

    def make_group(connection: Any) -> None:
        connection.knows_group = True

    begin_group(brokers, places, "orders", "shop", start, make_group)  # type: ignore[arg-type]


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_start, "_LOOK_EVERY", 0.0)


@pytest.mark.parametrize("knows_group", [True, False])
def test_queues_of_a_new_broker_are_read_from_their_beginning(*, knows_group: bool) -> None:
    """Everything in them was published after the group began, so nothing of it is skipped."""
    brokers = Brokers(first=Broker())
    begin(brokers, LAST)
    assert brokers["first"].committed == {0: NEWEST, 1: NEWEST}
    brokers["second"] = Broker(knows_group=knows_group)
    begin(brokers, LAST)
    assert brokers["second"].committed == {0: 0, 1: 0}
    assert brokers["first"].committed == {0: NEWEST, 1: NEWEST}


@pytest.mark.parametrize(("start", "at"), [(FIRST, 0), (LAST, NEWEST)])
def test_a_new_group_begins_where_it_says(start: str, at: int) -> None:
    """On all brokers alike."""
    brokers = Brokers(first=Broker(), second=Broker())
    begin(brokers, start)
    assert [each.committed for each in brokers.values()] == [{0: at, 1: at}] * 2
