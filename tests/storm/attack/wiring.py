"""Puts the killer where the engine has no point of its own: strategies' hooks, the driver's commit, inside adapters.

Only objects of the process under attack are wrapped; the product knows nothing of it.
"""

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

from sqlalchemy import Engine

from oncemq.contracts.adapter import Sink, Subscription
from oncemq.contracts.checks import UnitKind
from oncemq.contracts.strategy import Strategy, Traits
from oncemq.contracts.unit import Item, Run
from oncemq.contracts.verdict import PROCEED, Verdict
from oncemq.engine.plan import AppPlan
from oncemq.message.envelope import Delivery
from storm.attack.files import MOVED, Trace
from storm.attack.killer import Killer
from storm.rocketmq.wiring import wire_rocketmq

_COM_QUERY = 3


def wired(plan: AppPlan, killer: Killer, arrivals: Trace | None) -> AppPlan:
    """Return `plan` with the killer, and who writes down arrivals, in all places."""
    for adapter in plan.adapters.values():
        _wire_adapter(adapter, killer)
        if arrivals is not None:
            _note_arrivals(adapter, arrivals)
    if plan.engine is not None and killer.wants("commit-sent"):
        _wire_commit(plan.engine, killer)
    last = Listener(killer)
    return replace(
        plan,
        consumers=tuple(
            replace(consumer, strategies=(*consumer.strategies, last)) for consumer in plan.consumers
        ),
    )


class Listener(Strategy):
    """The last of a chain: what the others have done when it is called is done."""

    traits: ClassVar[Traits] = Traits(decides=False, kinds=frozenset(UnitKind))

    def __init__(self, killer: Killer) -> None:
        self._killer = killer

    def decide(self, run: Run, item: Item) -> Verdict:
        """Stand before the handler."""
        self._killer("decided")
        return PROCEED

    def committed(self, run: Run) -> None:
        """Stand behind every cache."""
        self._killer("caches")


class NotingSink:
    """Writes down what a process received, in order, before the engine sees it."""

    def __init__(self, sink: Sink, arrivals: Trace) -> None:
        self._sink = sink
        self._arrivals = arrivals

    def deliver(self, deliveries: Sequence[Delivery], consumer: str) -> None:
        """Write a line for each and hand them on; bodies of the tests begin with the identity."""
        for delivery in deliveries:
            identity = bytes(delivery.message.body).split(b'"', 4)[3].decode()
            queue = getattr(delivery.token, "queue", None)
            moved = [MOVED] if str(getattr(queue, "topic", "")).startswith("%RETRY%") else []
            self._arrivals.write(os.getpid(), identity, delivery.message.attempt, *moved)
        self._sink.deliver(deliveries, consumer)

    def lost(self, consumer: str, generation: int, *, alone: bool = False) -> None:
        """Hand it on."""
        self._sink.lost(consumer, generation, alone=alone)

    def release(self, consumer: str, generation: int) -> Sequence[Delivery]:
        """Hand it on."""
        return self._sink.release(consumer, generation)


def _note_arrivals(adapter: Any, arrivals: Trace) -> None:
    opens = adapter.open

    def open_noting(subscriptions: Sequence[Subscription], sink: Sink) -> None:
        opens(subscriptions, NotingSink(sink, arrivals))

    adapter.open = open_noting


def _wire_commit(engine: Engine, killer: Killer) -> None:
    """Die when COMMIT is on its way to the server and its answer is not here."""
    commit = engine.dialect.do_commit

    def commit_or_die(connection: Any) -> None:
        if not killer.armed:
            commit(connection)
            return
        driver = connection.driver_connection
        if engine.dialect.name == "postgresql":
            driver.pgconn.send_query(b"COMMIT")
            driver.pgconn.flush()
        elif engine.dialect.name in {"mysql", "mariadb"}:
            driver._execute_command(_COM_QUERY, "COMMIT")
        else:
            commit(connection)
        killer.die()

    engine.dialect.do_commit = commit_or_die  # type: ignore[method-assign]


def _wire_adapter(adapter: Any, killer: Killer) -> None:
    package = type(adapter).__module__
    if ".rabbitmq." in package:
        _wire_rabbitmq(adapter, killer)
    elif ".rocketmq." in package:
        wire_rocketmq(adapter, killer)
    elif ".kafka." in package:
        # Environments of single drivers of RocketMQ have no client for Kafka.
        from storm.kafka.wiring import wire_kafka  # noqa: PLC0415

        wire_kafka(adapter, killer)
    else:
        _wire_embedded(adapter, killer)


def _wire_rabbitmq(adapter: Any, killer: Killer) -> None:
    publisher = adapter._publisher
    channel, send_all = publisher._channels[True], publisher.send
    send_batch = channel.send

    def send_and_look(batch: Any) -> None:
        send_batch(batch)
        if killer.wants(f"{_what(batch.publications)}-sent"):
            # In the next turn of its loop, after the frames have been written to the socket.
            publisher._link.later(0.0005, lambda: killer(f"{_what(batch.publications)}-sent"))

    def confirmed(publications: Sequence[Any], *, own: bool) -> Any:
        errors = send_all(publications, own=own)
        if own and publications and not all(errors):
            killer(f"{_what(publications)}-confirmed")
        return errors

    channel.send = send_and_look
    publisher.send = confirmed


def _what(publications: Sequence[Any]) -> str:
    return "dead-letter" if publications[0].routing_key.endswith(".dead") else "retry"


def _wire_embedded(adapter: Any, killer: Killer) -> None:
    """Copy and settlement are one transaction there: `sent` is inside it, `confirmed` right after."""
    for method, what in (("retry", "retry"), ("dead_letter", "dead-letter")):
        setattr(adapter, method, _moving(adapter, getattr(adapter, method), what, killer))


def _moving(adapter: Any, method: Any, what: str, killer: Killer) -> Any:
    settle = adapter._settle

    def moved(parts: Any) -> Any:
        adapter._settle = lambda deliveries, work: settle(
            deliveries, lambda connection, mine: _then(work(connection, mine), killer, f"{what}-sent")
        )
        try:
            failed = method(parts)
        finally:
            adapter._settle = settle
        killer(f"{what}-confirmed")
        return failed

    return moved


def _then(result: Any, killer: Killer, name: str) -> Any:
    killer(name)
    return result
