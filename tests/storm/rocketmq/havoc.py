"""What is done to a RocketMQ and its members during a storm; every fault returns whether it is known to have happened."""

import signal
from collections.abc import Callable
from dataclasses import dataclass
from threading import Event
from time import monotonic
from typing import Any

from services import ports
from services.servers.rocketmq import BROKER, NAME_SERVER, RocketMQ
from storm.attack import havoc
from storm.attack.assassin import Assassin, is_frozen
from storm.attack.stage import wait_for
from storm.oracle.rocketmq_reader import Reader
from support.brokers.places import Place

FORGOTTEN_WITHIN = 180.0
"""Seconds; a broker waits 120 for a member's next word, and looks every 10."""


@dataclass(frozen=True, slots=True)
class RocketField:
    """Servers that may be broken.

    Args:
        broker: name server and broker.
        database: the database server; None where it is shared with others, and left alone.
        place: how every process reaches them.
    """

    broker: RocketMQ
    database: Any
    place: Place


Fault = Callable[[RocketField, Assassin], bool]
"""Given the servers, and who keeps the consumers."""


def kill_name_server(field: RocketField, _keeper: Assassin) -> bool:
    """SIGKILL the name server; the broker tells the next one of itself within ten seconds."""
    return _kill_only(field.broker, NAME_SERVER, field.broker.port)


def kill_broker(field: RocketField, _keeper: Assassin) -> bool:
    """SIGKILL the broker, and its proxy with it."""
    return _kill_only(field.broker, BROKER, field.broker.settings.ports["broker"])


def kill_both(field: RocketField, _keeper: Assassin) -> bool:
    """SIGKILL name server and broker at once."""
    return havoc.kill_server(field.broker)


def kill_database(field: RocketField, _keeper: Assassin) -> bool:
    """SIGKILL the database and start it again."""
    return havoc.kill_server(field.database)


def freeze_broker(field: RocketField, _keeper: Assassin) -> bool:
    """SIGSTOP name server and broker for a while: connections stay open, nothing answers."""
    field.broker.pause()
    silent = not field.broker.answers()
    Event().wait(2)
    field.broker.resume()
    return silent


def freeze_member_over_death(field: RocketField, keeper: Assassin) -> bool:
    """SIGSTOP a member, have the broker die; others get its queues, and it wakes up with what it held."""

    def death(_pid: int) -> bool:
        happened, before = kill_broker(field, keeper), keeper.stage.applied()
        wait_for(lambda: keeper.stage.applied() > before, "others to go on", pause=0.1)
        return happened

    return _sleep_through(keeper, death)


def freeze_member_until_forgotten(field: RocketField, keeper: Assassin) -> bool:
    """SIGSTOP a member until the broker takes it for dead; others get its queues, and it wakes up with what it held."""
    known, stage = Reader(field.place.broker), keeper.stage

    def is_member(pid: int) -> bool:
        return any(f"@{pid}@" in client for client in known.members(stage.group))

    def oblivion(pid: int) -> bool:
        assert is_member(pid), "it is no member"
        before, deadline = 0, monotonic() + FORGOTTEN_WITHIN
        while is_member(pid):
            assert monotonic() < deadline, "the broker has not forgotten a member"
            before = stage.applied()
            Event().wait(1)
        wait_for(lambda: stage.applied() > before, "others to have its queues", pause=0.1)
        return True

    return _sleep_through(keeper, oblivion)


def _sleep_through(keeper: Assassin, what: Callable[[int], bool]) -> bool:
    """Have a member that works are blocked while something happens, of which its process id is told."""
    sleeper = keeper.borrow()
    if not is_frozen(sleeper):
        return False
    happened = what(sleeper.pid)
    woken = sleeper.send(signal.SIGCONT)
    return sleeper.drain(60) == 0 and woken and happened


def _kill_only(server: RocketMQ, name: str, port: int) -> bool:
    server.kill_only(name)
    away = not ports.accepts(port)
    server.start()
    return away


FAULTS: dict[str, Fault] = {
    "name server killed": kill_name_server,
    "member frozen while the broker dies": freeze_member_over_death,
    "database killed": kill_database,
    "broker frozen": freeze_broker,
    "broker and name server killed": kill_both,
    "broker killed": kill_broker,
    "member frozen until forgotten": freeze_member_until_forgotten,
}
"""In an order that mixes them."""

BROKER_DIES = (freeze_member_over_death, kill_both, kill_broker)
"""Faults after which a broker knows how far groups are only as it was when it last saved that."""

SAVED_EVERY = 5.0
"""Seconds between two savings (flushConsumerOffsetInterval of RocketMQ's BrokerConfig); what was settled since comes again."""

SHORT = tuple(FAULTS)[:4]
"""What a short storm has: each kind of harm once."""
