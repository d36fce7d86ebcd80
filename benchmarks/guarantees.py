"""What each guarantee costs: `python -m benchmarks.guarantees` prints throughput and p99 of each strategy as a table.

With `--costs` it prints statements, transactions and processor time for a message instead, where nothing is a copy.

The engine on PostgreSQL, with one process and messages made in memory, so that a broker's cost hides nothing. The
p99 is from the hand-over of a message to its acknowledgement at full load, with at most `WINDOW` in flight.
"""

import argparse
import json
import os
import random
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

from sqlalchemy import Engine, event, text, update
from sqlalchemy.orm import Session

from benchmarks.stage.servers import Servers, servers, surroundings
from benchmarks.stage.tables import THINGS, Points, Thing
from oncemq import App, Done, Envelope, NotDone, Publisher
from oncemq.config.build.catalog import Catalog
from oncemq.contracts.adapter import SettleFailed
from oncemq.engine.application import Application
from oncemq.ledger import schema
from oncemq.message.envelope import Delivery
from oncemq.testing.scripted import ScriptedAdapter

WINDOW = 1000
MESSAGES = 10_000
"""Of a case of `make bench`."""
KEYS = THINGS
ZIPF = 1.1
SHARES = (0.0, 0.1, 0.5)
ABOUT = ("machine", "Python", "PostgreSQL", "synchronous_commit", "fsync", "oncemq")
COSTS = {
    "statements": ("statements", 2),
    "transactions": ("commits", 3),
    "µs of OnceMQ's process": ("cpu_us", 0),
    "µs of PostgreSQL's": ("database_us", 0),
}
"""Columns of the table of costs, each with its figure and digits."""
_PATIENCE = 120.0
"""Seconds without any progress, after which a measurement has failed."""


@dataclass(frozen=True, slots=True)
class Guarantee:
    """One way of making the same handler idempotent.

    Args:
        strategy: as the configuration writes it; several make a list.
        external: its effect is outside the database; the handler is empty then, and 32 run at once.
        publishes: it also publishes one message, by the outbox.
        options: more for the consumer.
        ordered: each key's messages come in their order, instead of shuffled.
        numbers: the handler also writes the message's number into the row of its key.
        share: of the messages, where each costs a transaction of its own and all would take an hour.
    """

    strategy: str | Mapping[str, Any] | tuple[str | Mapping[str, Any], ...]
    external: bool = False
    publishes: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)
    ordered: bool = False
    numbers: bool = False
    share: float = 1.0


def look(_envelope: Envelope) -> Done | NotDone:
    """Stand for the user's `verify`; no one asks in a measurement without failures."""
    return NotDone()


_ROW = {"table": "bench_things", "key": "name"}
_ONE_AFTER_THE_OTHER = {"to": "body.state", "states": [f"s{place}" for place in range(1, 20_001)]}
_NUMBER_BEFORE = {"entity": _ROW, "where": {"number": "body.before"}, "otherwise": "stale"}

GUARANTEES: dict[str, Guarantee] = {
    "none": Guarantee("none"),
    "unique_key": Guarantee("unique_key"),
    "unique_key, fingerprint": Guarantee({"unique_key": {"fingerprint": ["body.amount"]}}),
    "unique_key, in order": Guarantee("unique_key", ordered=True),
    "sequence, in order": Guarantee({"sequence": {"order": "body.n"}}, ordered=True),
    "state_machine, in order": Guarantee({"state_machine": _ONE_AFTER_THE_OTHER}, ordered=True),
    "optimistic_lock, in order": Guarantee(
        {"optimistic_lock": {"entity": {**_ROW, "version": "version"}, "version": "body.n"}}, ordered=True
    ),
    "row updated by the handler, unique_key": Guarantee("unique_key", ordered=True, numbers=True),
    "row updated by the handler, precondition": Guarantee(
        {"precondition": _NUMBER_BEFORE}, ordered=True, numbers=True, share=0.1
    ),
    "pessimistic_lock + unique_key": Guarantee(({"pessimistic_lock": _ROW}, "unique_key")),
    "redis_lock + unique_key": Guarantee(({"redis_lock": {"name": "bench-{key}"}}, "unique_key")),
    "tiered": Guarantee({"tiered": {"bloom": True}}),
    "unique_key, one message published": Guarantee("unique_key", publishes=True),
    "none, effects outside": Guarantee("none", external=True),
    "two_phase": Guarantee({"two_phase": {"verify": look}}, external=True, share=0.25),
    "redis_flag": Guarantee({"redis_flag": {"verify": look}}, external=True),
}
"""A new strategy is one line here."""


class Clocked(ScriptedAdapter):
    """Notes how long each message took, and lets at most a window of them be under way."""

    def __init__(self) -> None:
        super().__init__()
        self.began: dict[int, float] = {}
        self.took: list[float] = []
        self.room = threading.Semaphore(WINDOW)

    def acknowledge(self, deliveries: Sequence[Delivery]) -> Sequence[SettleFailed]:
        """Note the time."""
        now = time.monotonic()
        for delivery in deliveries:
            delivery.settled = True
            self.took.append(now - self.began[int(delivery.message.headers["number"])])
            self.room.release()
        return ()


def give_points(order: dict, session: Session) -> None:  # type: ignore[type-arg]
    """Write one row, as the ORM does."""
    session.add(Points(order_id=order["order_id"], user_id=order["key"], points=30))


def give_and_number(order: dict, session: Session) -> None:  # type: ignore[type-arg]
    """Write one row, and change the one of the message's key."""
    give_points(order, session)
    session.execute(update(Thing).where(Thing.name == order["key"]).values(number=order["n"]))


def give_and_publish(order: dict, session: Session, publisher: Publisher) -> None:  # type: ignore[type-arg]
    """Write one row, and tell anyone who waits for it."""
    give_points(order, session)
    publisher.publish("given", order)


def do_nothing(order: dict) -> None:  # type: ignore[type-arg]
    """Stand for an effect outside that costs nothing."""


def bodies(messages: int, duplicates: float, *, zipf: bool, ordered: bool) -> list[bytes]:
    """Return messages, the same each time: a share of the orders twice, shuffled or in order."""
    draw = random.Random(42)
    weights = [1 / place**ZIPF for place in range(1, KEYS + 1)] if zipf else None
    unique = round(messages / (1 + duplicates))
    keys = draw.choices(range(KEYS), weights, k=unique)
    numbers = [*range(unique), *draw.sample(range(unique), messages - unique)]
    if ordered:
        numbers.sort()
    else:
        draw.shuffle(numbers)
    counts, places = Counter[int](), list[int]()
    for key in keys:
        counts[key] += 1
        places.append(counts[key])
    orders = [
        {
            "order_id": f"o{number}",
            "key": f"k{keys[number]}",
            "amount": 12.5,
            "n": places[number],
            "before": places[number] - 1,
            "state": f"s{places[number]}",
        }
        for number in numbers
    ]
    return [json.dumps(order).encode() for order in orders]


def figures(name: str, where: Servers, scale: float) -> dict[str, float]:
    """Return what one guarantee costs where nothing is a copy and keys are evenly used; as `measure`."""
    guarantee = GUARANTEES[name]
    count = max(200, round(MESSAGES * scale * guarantee.share))
    with redirect_stdout(sys.stderr):  # the app's log
        return measure(guarantee, bodies(count, 0.0, zipf=False, ordered=guarantee.ordered), where)


def measure(guarantee: Guarantee, sent: Sequence[bytes], where: Servers) -> dict[str, float]:
    """Return figures without the warm-up, the first tenth of the messages.

    `rate` is messages per second, `p99_ms` is from hand-over to acknowledgement, `cpu_us` the processor time of
    this process for a message, `database_us` that of PostgreSQL's processes for its connections, 0 where it runs elsewhere;
    `statements` and `commits` are those of the app's database for a message, upkeep included.

    Raises:
        RuntimeError: the app ended, or is blocked.
    """
    where.empty()
    warm_up = len(sent) // 10
    with tempfile.TemporaryDirectory(prefix="oncemq-bench-") as folder:
        plan = _app(guarantee, where, folder).plan()
        if plan.engine is not None:
            schema.create(plan.engine, plan.tables())
        adapter = plan.adapters["memory"]
        if not isinstance(adapter, Clocked):
            raise TypeError(adapter)
        counts = _counting(plan.engine)
        running = Application(plan)
        thread = threading.Thread(target=running.run, daemon=True)
        thread.start()
        try:
            _drain(adapter, sent[:warm_up], thread)
            adapter.took.clear()
            counts.clear()
            server, own = _database_seconds(where), time.process_time()
            seconds = _drain(adapter, sent[warm_up:], thread)
            own, server = time.process_time() - own, _database_seconds(where) - server
            sent_there = dict(counts)
        finally:
            running.stop()
            thread.join(_PATIENCE)
        if thread.is_alive():
            raise RuntimeError("the app does not end")
    measured = len(sent) - warm_up
    return {
        "rate": measured / seconds,
        "p99_ms": sorted(adapter.took)[int(0.99 * measured)] * 1000,
        "cpu_us": own / measured * 1e6,
        "database_us": server / measured * 1e6,
        "statements": sent_there.get("statements", 0) / measured,
        "commits": sent_there.get("commits", 0) / measured,
    }


def _counting(engine: Engine | None) -> Counter[str]:
    """Return what counts the statements and commits of an engine from now on."""
    counts = Counter[str]()
    if engine is not None:
        event.listen(engine, "before_cursor_execute", lambda *_: counts.update(["statements"]))
        event.listen(engine, "commit", lambda _: counts.update(["commits"]))
    return counts


def _database_seconds(where: Servers) -> float:
    """Return the processor time of the database's processes that serve its connections."""
    with where.engine.connect() as connection:
        asked = (
            "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        pids = connection.execute(text(asked)).scalars().all()
    files = [Path(f"/proc/{pid}/stat") for pid in pids]
    fields = [file.read_text().rpartition(")")[2].split() for file in files if file.exists()]
    # Fields 14 and 15 of the file; the first two end with the parenthesis.
    return sum(int(field[11]) + int(field[12]) for field in fields) / os.sysconf("SC_CLK_TCK")


def _app(guarantee: Guarantee, where: Servers, folder: str) -> App:
    app = App(
        "bench",
        brokers={"memory": "scripted://"},
        database=where.postgresql,
        redis=where.redis,
        catalog=Catalog(adapters={"scripted": Clocked}),
        state=str(Path(folder) / "state"),
    )
    app.topic("orders", key="body.key", identity="body.order_id")
    app.topic("given", key="body.key", identity="message_id")
    effects = {"effects": "external"} if guarantee.external else {}
    chain = guarantee.strategy if isinstance(guarantee.strategy, tuple) else (guarantee.strategy,)
    declare = app.consumer(
        # A name of its own: what Redis remembers cannot be emptied.
        topic="orders",
        name=f"work-{uuid4().hex[:8]}",
        strategies=list(chain),
        **effects,
        **guarantee.options,
    )
    in_database = give_and_publish if guarantee.publishes else give_points
    in_database = give_and_number if guarantee.numbers else in_database
    declare(do_nothing if guarantee.external else in_database)
    return app


def _drain(adapter: Clocked, sent: Sequence[bytes], thread: threading.Thread) -> float:
    """Hand over the messages, and return the seconds until the last one was acknowledged."""
    _until(lambda: bool(adapter.subscriptions), lambda: 0, thread)
    started = time.monotonic()
    adapter.began.clear()
    for number, body in enumerate(sent):
        if not adapter.room.acquire(timeout=_PATIENCE):
            raise RuntimeError(f"nothing was acknowledged for {_PATIENCE:.0f} s")
        adapter.began[number] = time.monotonic()
        adapter.deliver(body, headers={"number": str(number)})
    _until(lambda: len(adapter.took) >= len(sent), lambda: len(adapter.took), thread)
    return time.monotonic() - started


def _until(reached: Callable[[], bool], progress: Callable[[], int], thread: threading.Thread) -> None:
    seen, give_up = progress(), time.monotonic() + _PATIENCE
    while not reached():
        if progress() != seen:
            seen, give_up = progress(), time.monotonic() + _PATIENCE
        if not thread.is_alive() or time.monotonic() > give_up:
            raise RuntimeError("the app has ended" if not thread.is_alive() else "the app makes no progress")
        time.sleep(0.001)


def main() -> int:
    """Measure and print; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.guarantees", description=__doc__)
    parser.add_argument("--messages", type=int, default=20_000)
    parser.add_argument("--only", nargs="+", choices=list(GUARANTEES))
    parser.add_argument(
        "--costs", action="store_true", help="statements, commits and processor time for a message"
    )
    chosen = parser.parse_args()
    if chosen.costs:
        return _print_costs(chosen.only or list(GUARANTEES), chosen.messages)
    heads = [f"{keys}, {share:.0%} twice" for keys in ("uniform", "Zipf") for share in SHARES]
    print(f"| strategy | {' | '.join(heads)} |")
    print("|---|" + "---:|" * len(heads))
    failed = list[str]()
    with servers() as where:
        for name in chosen.only or GUARANTEES:
            cells = [
                _cell(name, chosen.messages, share, where, failed, zipf=zipf)
                for zipf in (False, True)
                for share in SHARES
            ]
            print(f"| {name} | {' | '.join(cells)} |", flush=True)
        known = surroundings(where)
    about = "; ".join(f"{name} {known[name]}" for name in ABOUT)
    fewer = ", ".join(
        f"{name} {guarantee.share:g} of them" for name, guarantee in GUARANTEES.items() if guarantee.share < 1
    )
    print(f"\n{chosen.messages:,} messages each ({fewer}), at most {WINDOW:,} in flight; {about}")
    for line in failed:
        print(f"failed: {line}", file=sys.stderr)
    return 1 if failed else 0


def _print_costs(names: Sequence[str], messages: int) -> int:
    print(f"| strategy | {' | '.join(COSTS)} |")
    print("|---|" + "---:|" * len(COSTS))
    with servers() as where:
        for name in names:
            found = figures(name, where, messages / MESSAGES)
            cells = (f"{found[figure]:.{digits}f}" for figure, digits in COSTS.values())
            print(f"| {name} | {' | '.join(cells)} |", flush=True)
    return 0


def _cell(name: str, messages: int, share: float, where: Servers, failed: list[str], *, zipf: bool) -> str:
    guarantee = GUARANTEES[name]
    count = max(1, round(messages * guarantee.share))
    sent = bodies(count, share, zipf=zipf, ordered=guarantee.ordered)
    try:
        with redirect_stdout(sys.stderr):  # the app's log
            found = measure(guarantee, sent, where)
    except Exception as error:  # an hour's other measurements are not its fault
        failed.append(f"{name}, {share:.0%} twice{', Zipf' if zipf else ''}: {error}")
        return "failed"
    return f"{found['rate']:,.0f}/s, {found['p99_ms']:,.0f} ms"


if __name__ == "__main__":
    sys.exit(main())
