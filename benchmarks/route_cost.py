"""What routes cost a message: `python -m benchmarks.route_cost` prints processor µs per message, with and without."""

from time import thread_time
from types import SimpleNamespace
from typing import Any

from oncemq.contracts.checks import Effects
from oncemq.handler.binding import BoundHandler, bind
from oncemq.handler.routes import with_routes
from oncemq.message.envelope import Message

_MESSAGES = 300_000


def handle(order: dict[str, Any]) -> None:
    """Do nothing."""


def cost(handler: BoundHandler) -> float:
    """Return µs per call."""
    body = {"id": "1", "type": "paid"}
    message = Message("orders", b"", headers={"event_type": "paid"})
    item: Any = SimpleNamespace(payload=body, delivery=SimpleNamespace(message=message), key="1")
    run: Any = None
    call, started = handler.call, thread_time()
    for _ in range(_MESSAGES):
        call(run, item)
    return (thread_time() - started) / _MESSAGES * 1e6


def main() -> None:
    """Print the table."""
    plain = bind(handle, name="benchmark:handle", provided={}, effects=Effects.DATABASE)
    routes = {f"kind-{number}": plain for number in range(20)} | {"paid": plain}
    handlers = {"one handler": plain}
    handlers |= {
        f"21 routes by {by}": with_routes(routes, by, None, "orders")
        for by in ("headers.event_type", "body.type")
    }
    for name, handler in handlers.items():
        print(f"{name:32}{min(cost(handler) for _ in range(5)):7.2f} µs")


if __name__ == "__main__":
    main()
