"""Settlement of async handlers: whatever ends it ends the app, which would else take messages and settle none."""

from typing import Any

from oncemq.contracts.checks import Effects
from oncemq.testing.scripted import ScriptedAdapter
from support.engine import make_app, make_consumer, running


class _NoException(BaseException):
    """What `except Exception` lets through, such as a SystemExit from a broker's library."""


def test_an_error_of_any_kind_ends_the_app() -> None:
    """It is closed, so that its broker delivers the unsettled messages to another process."""

    async def handle(_: dict[str, Any]) -> None:
        """Do nothing."""

    def point(name: str) -> None:
        if name == "before-ack":
            raise _NoException

    adapter = ScriptedAdapter()
    consumer = make_consumer(handle, effects=Effects.EXTERNAL)
    with running(make_app(adapter, None, consumer), point=point):
        adapter.deliver(b'{"id": "a", "key": "k"}')
        adapter.wait_until(lambda adapter: adapter.closed)
    assert adapter.acknowledged == []
