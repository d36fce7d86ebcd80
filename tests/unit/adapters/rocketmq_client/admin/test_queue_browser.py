"""Looking into a queue: what was confirmed is seen, although brokers show it a moment later."""

import json
from typing import Any

from oncemq_adapters.rocketmq_client.admin.queue_browser import wait_until_shown
from oncemq_adapters.rocketmq_client.errors import Denied


class Late:
    """A broker that stores more and more, and shows it with a delay.

    Args:
        behind: by how many bytes, each time that it is asked.
    """

    def __init__(self, *behind: int) -> None:
        self._behind = list(behind)
        self.asked = 0

    def call(self, *_: Any) -> tuple[dict[str, str], bytes]:
        """Return how far it is."""
        self.asked += 1
        if not self._behind:
            raise Denied("b", 16, "not for you", {})
        table = {"commitLogMaxOffset": str(100 * self.asked), "dispatchBehindBytes": str(self._behind.pop(0))}
        return {}, json.dumps({"table": table}).encode()


def asked(broker: Any) -> int:
    """Return how often the broker is asked."""
    wait_until_shown(broker)
    return int(broker.asked)


def test_what_was_confirmed_before_is_waited_for() -> None:
    """A dead letter is listed as soon as it is confirmed, and one that was removed is not listed once more."""
    assert asked(Late(40, 150, 220, 0)) == 4


def test_what_comes_later_is_not_waited_for() -> None:
    """A broker that always has something under way holds up no one."""
    assert asked(Late(40, 100, 100)) == 2


def test_who_may_not_ask_takes_what_is_there() -> None:
    """Accounts of apps need no right to administrate."""
    assert asked(Late()) == 1
