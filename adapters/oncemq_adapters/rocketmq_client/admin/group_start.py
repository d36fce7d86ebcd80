"""Decides where a group begins in queues that it has committed nothing of: at its start, or in queues added later.

A queue that was added while the group existed begins at its beginning: everything in it was published after the group
began. To tell the two apart, a group that begins at the end commits that for all queues of the topic at once, and the
queues of number 0 come last. So a commit in a queue 0 says that the group has begun on this topic.
"""

import time
from collections.abc import Callable, Sequence
from datetime import datetime

from oncemq_adapters.rocketmq_client import codes
from oncemq_adapters.rocketmq_client.admin.offset_requests import (
    commit_offset,
    committed_offset,
    first_offset,
)
from oncemq_adapters.rocketmq_client.codes import Place
from oncemq_adapters.rocketmq_client.connections.broker_connections import Brokers
from oncemq_adapters.rocketmq_client.errors import Denied, RocketMQError
from oncemq_adapters.rocketmq_client.names import FIRST, LAST
from oncemq_adapters.rocketmq_client.protocol.connection import Connection

ROUNDS = 3
"""A broker loses one of two concurrent first commits of a group: they are checked again."""

_LOOKS = 10
_LOOK_EVERY = 0.3
"""Seconds. Another member that is committing the first offsets right now may be slow; queues added later wait once for this."""

MakeGroup = Callable[[Connection], None]


def _no_group(connection: Connection) -> None:
    """Leave the group to the broker."""


def begin_group(
    brokers: Brokers,
    places: Sequence[Place],
    topic: str,
    group: str,
    start: str | datetime,
    make_group: MakeGroup = _no_group,
) -> None:
    """Commit where a group goes on in each of these queues that it has committed nothing of.

    Args:
        brokers: connections to them.
        places: all queues of the topic, as the name servers know them now.
        topic: by its real name.
        group: by its real name.
        start: where the group begins on a topic that it was never on.
        make_group: called for a broker that does not know the group and makes none by itself.

    Raises:
        RocketMQError: a broker did not take it, or did not say whether the group was there before.
    """
    chosen: dict[Place, int] = {}
    for _ in range(ROUNDS):
        missing, begun, failure = _look(brokers, places, topic, group)
        if missing and begun and start == LAST and not chosen:
            missing, failure = _after_others(brokers, missing, topic, group)
        if not missing:
            return
        if failure is not None and not begun:
            raise failure
        for place in sorted(missing, key=lambda place: (place[1] == 0, place)):
            name, number = place
            connection = brokers.get(name)
            if place not in chosen:
                # Another member may have been here meanwhile: its commit stands.
                if _committed(connection, group, topic, number) is not None:
                    continue
                where = FIRST if begun and start == LAST else start
                chosen[place] = first_offset(connection, topic, number, where, group)
            _commit(connection, group, topic, number, chosen[place], make_group)


def _after_others(
    brokers: Brokers, missing: Sequence[Place], topic: str, group: str
) -> tuple[Sequence[Place], RocketMQError | None]:
    """Return the queues that other members, which may be committing the first offsets now, leave without a commit."""
    failure: RocketMQError | None = None
    for _ in range(_LOOKS):
        time.sleep(_LOOK_EVERY)
        missing, _, failure = _look(brokers, missing, topic, group)
        if not missing:
            break
    return missing, failure


def _look(
    brokers: Brokers, places: Sequence[Place], topic: str, group: str
) -> tuple[Sequence[Place], bool, RocketMQError | None]:
    """Return the queues without a commit, whether the group has begun, and why a broker did not answer."""
    missing: list[Place] = []
    begun = False
    failure: RocketMQError | None = None
    for name, number in places:
        try:
            known = _committed(brokers.get(name), group, topic, number) is not None
        except RocketMQError as error:
            failure = error
            continue
        begun = begun or (known and number == 0)
        if not known:
            missing.append((name, number))
    return missing, begun, failure


def _committed(connection: Connection, group: str, topic: str, number: int) -> int | None:
    try:
        return committed_offset(connection, group, topic, number)
    except Denied as denied:
        if denied.code == codes.NO_GROUP:
            return None
        raise


def _commit(
    connection: Connection, group: str, topic: str, number: int, offset: int, make_group: MakeGroup
) -> None:
    try:
        commit_offset(connection, group, topic, number, offset)
    except Denied as denied:
        if denied.code != codes.NO_GROUP:
            raise
        make_group(connection)
        commit_offset(connection, group, topic, number, offset)
