"""What options of a consumer cost a message: `python -m benchmarks.option_cost breakers` prints processor µs per message.

Its tables: breakers, routes, rates, accepts.
"""

import json
import sys
from collections.abc import Mapping
from time import thread_time
from types import SimpleNamespace
from typing import Any

from oncemq.common.clock import SystemClock
from oncemq.contracts.checks import Effects
from oncemq.contracts.verdict import DUPLICATE, PROCEED, Outcome
from oncemq.engine.breakers.recorder import BreakerRecorder
from oncemq.engine.breakers.rule import BreakerKind, BreakerRule
from oncemq.engine.consumer.receiver import Intake
from oncemq.engine.consumer.scheduler import Scheduler
from oncemq.engine.rates.rate_limit import Limit, RateLimit
from oncemq.engine.rates.rule import RateRule
from oncemq.engine.rates.shared_rate import SharedRate
from oncemq.engine.workers.placement import Placement
from oncemq.handler.binding import BoundHandler, bind
from oncemq.handler.routes import with_routes
from oncemq.handler.upcasting import Upcasts
from oncemq.message.body_version import BodyVersion
from oncemq.message.decoding import make_decoder
from oncemq.message.envelope import Delivery, Message
from oncemq.message.expressions import compile_expression
from oncemq.message.reader import Reader
from oncemq.message.routed_reader import RoutedReader, RouteReader
from oncemq.observe.observers import Observers
from oncemq.schemas.bodies import BodySchemas
from oncemq.schemas.registry import Registered

_MESSAGES = 200_000
_SCHEMA = {
    "type": "object",
    "properties": {
        "id": {"type": "string"},
        "type": {"enum": ["paid", "shipped"]},
        "amount": {"type": "number"},
    },
    "required": ["id", "type"],
}
_LOOK_AFTER = 10_000
"""Messages between two looks, as at 10,000 messages a second."""


def breakers_cost(kinds: tuple[BreakerKind, ...], size: int) -> float:
    """Return µs per message in units of `size`, beyond those of an observer without breakers."""
    rules = {"points": [BreakerRule(kind, 1.0) for kind in kinds]}
    recorder = BreakerRecorder(rules, SystemClock())
    return (_seconds(recorder, Observers([recorder]), size) - _seconds(None, Observers([]), size)) * 1e6


def _seconds(recorder: BreakerRecorder | None, observers: Observers, size: int) -> float:
    units = []
    for start in range(0, _MESSAGES, size):
        pairs = []
        for number in range(start, start + size):
            delivery = Delivery(Message("orders", b""), token=number, generation=1)
            # A tenth of the messages has one key.
            delivery.key = "hot" if number % 10 == 0 else f"order-{number}"
            pairs.append((delivery, DUPLICATE if number % 10 == 1 else PROCEED))
        units.append(pairs)
    counts: Mapping[Outcome, int] = {Outcome.PROCEED: size - size // 10, Outcome.DUPLICATE: size // 10}
    started, since = thread_time(), 0
    for pairs in units:
        observers.judged("points", pairs)
        observers.unit_done("points", counts, size=size, seconds=0.05)
        since += size
        if recorder is not None and since >= _LOOK_AFTER:
            recorder.look()
            since = 0
    return (thread_time() - started) / _MESSAGES


def handle(order: dict[str, Any]) -> None:
    """Do nothing."""


def call_cost(handler: BoundHandler, version: str = "1") -> float:
    """Return µs per call with a message of this version."""
    body = {"id": "1", "type": "paid"}
    headers = {"event_type": "paid", "v": version}
    message = Message("orders", json.dumps(body).encode(), headers=headers)
    item: Any = SimpleNamespace(payload=body, delivery=SimpleNamespace(message=message), key="1")
    run: Any = None
    call, started = handler.call, thread_time()
    for _ in range(_MESSAGES):
        call(run, item)
    return (thread_time() - started) / _MESSAGES * 1e6


class _Generous:
    """A Redis that always has what is wanted: its round trip is no processor time of a message."""

    def call(self, _call: object) -> list[int]:
        """Return a tenth of a second's messages."""
        return [1_000_000, 0]


def rate_cost(limit: Limit | None, size: int) -> float:
    """Return µs per message to take it from a scheduler and give its key back, in units of `size`."""
    scheduler = Scheduler(SystemClock())
    scheduler.rate_limit = limit
    for number in range(_MESSAGES):
        delivery = Delivery(Message("orders", b""), token=number, generation=1)
        delivery.key = f"order-{number}"
        scheduler.put([delivery])
    started, left = thread_time(), _MESSAGES
    while left:
        taken = scheduler.take(size, 1.0)
        scheduler.done(taken)
        left -= len(taken)
    return (thread_time() - started) / _MESSAGES * 1e6


def print_rates() -> None:
    """Print µs beyond those of a scheduler without a rate, by the size of units."""
    clock, rule, redis = SystemClock(), RateRule(1e7, 1_000_000, shared=True), _Generous()
    print("processor µs per message; units of      500    100     10")
    plain = [min(rate_cost(None, size) for _ in range(5)) for size in (500, 100, 10)]
    for name in ("rate", "rate, shared"):
        row = []
        for size, without in zip((500, 100, 10), plain, strict=True):
            tries = []
            for _ in range(5):
                shared: Any = SharedRate(rule, redis, "shop.pay", clock, print)  # type: ignore[arg-type]
                tries.append(rate_cost(shared if name != "rate" else RateLimit(1e7, clock, 1_000_000), size))
            row.append(min(tries) - without)
        print(f"{name:33}" + "".join(f"{value:7.2f}" for value in row))


def print_breakers() -> None:
    """Print µs beyond those of an observer without breakers, by the size of units."""
    print("processor µs per message; units of      500    100     10")
    shares = (BreakerKind.DUPLICATES, BreakerKind.FAILURES)
    for name, kinds in (("duplicates, failures", shares), ("all three", (*shares, BreakerKind.HOT_KEY))):
        row = [min(breakers_cost(kinds, size) for _ in range(3)) for size in (500, 100, 10)]
        print(f"{name:33}" + "".join(f"{value:7.2f}" for value in row))


def print_routes() -> None:
    """Print µs of a handler's call, with and without routes."""
    plain = bind(handle, name="benchmark:handle", provided={}, effects=Effects.DATABASE)
    routes = {f"kind-{number}": plain for number in range(20)} | {"paid": plain}
    handlers = {"one handler": plain}
    handlers |= {
        f"21 routes by {by}": with_routes(routes, by, None, "orders")
        for by in ("headers.event_type", "body.type")
    }
    for name, handler in handlers.items():
        print(f"{name:32}{min(call_cost(handler) for _ in range(5)):7.2f} µs")
    for name, different in (("read", 0), ("read, routes with keys", 20)):
        print(f"{name:32}{min(read_cost(different) for _ in range(5)):7.2f} µs")
    for name, chains in (("units", ()), ("units, 2 chains", (0, 1))):
        print(f"{name:32}{min(unit_cost(chains) for _ in range(5)):7.2f} µs")


def read_cost(different: int) -> float:
    """Return µs per message to read it, with so many routes that have a key of their own."""
    reader = Reader(
        "main", "orders", "shop", key="body.id", version=None, identity=(), decoder=make_decoder()
    )
    if different:
        own = {f"kind-{number}": RouteReader(number + 1, reader) for number in range(different)}
        own["paid"] = RouteReader(different + 1, reader)
        reader = RoutedReader(compile_expression("headers.event_type"), RouteReader(0, reader), own)
    intake = Intake(reader)
    message = Message("orders", b'{"id": "1", "type": "paid"}', headers={"event_type": "paid"})
    deliveries = [Delivery(message) for _ in range(_MESSAGES)]
    started = thread_time()
    for delivery in deliveries:
        intake.understand(delivery)
    return (thread_time() - started) / _MESSAGES * 1e6


def unit_cost(chains: tuple[int, ...]) -> float:
    """Return µs per message to divide takes of 500 into units, where every other one has another chain."""
    taken = []
    for number in range(500):
        delivery = Delivery(Message("orders", b""))
        delivery.key, delivery.route = f"order-{number % 400}", number % 2 if chains else 0
        taken.append(delivery)
    placement, takes = Placement(None, chains), _MESSAGES // 500
    started = thread_time()
    for _ in range(takes):
        for unit in placement.units(taken, 500):
            len(unit)
    return (thread_time() - started) / _MESSAGES * 1e6


def print_accepts() -> None:
    """Print µs of a handler's call with bodies of the newest version, and of ones one and more steps below it."""
    plain = bind(handle, name="benchmark:handle", provided={}, effects=Effects.DATABASE)
    steps = dict.fromkeys(range(1, 10), lambda body: {**body, "cents": 1})
    version, versions = BodyVersion("orders", "headers.v"), range(1, 11)
    registered = BodySchemas("orders", [Registered("orders", each, _SCHEMA, "here") for each in versions])
    accepting = [
        bind(handle, name="benchmark:handle", provided={}, effects=Effects.DATABASE, upcast=upcasts)
        for upcasts in (
            Upcasts(version, versions, steps, make_decoder(), "orders"),
            Upcasts(version, versions, steps, make_decoder(), "orders", registered),
        )
    ]
    rows = [("without accepts", plain, "10")]
    for words, handler in zip(("", ", checked"), accepting, strict=True):
        rows.append((f"the newest version{words}", handler, "10"))
        rows += [(f"{10 - version} below it{words}", handler, str(version)) for version in (9, 8, 1)]
    for name, handler, version in rows:
        print(f"{name:32}{min(call_cost(handler, version) for _ in range(5)):7.2f} µs")


def main() -> None:
    """Print the tables that were asked for; without arguments all."""
    tables = {
        "breakers": print_breakers,
        "routes": print_routes,
        "rates": print_rates,
        "accepts": print_accepts,
    }
    for name in sys.argv[1:] or tables:
        tables[name]()


if __name__ == "__main__":
    main()
