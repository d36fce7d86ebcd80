"""A slot of a Redis Cluster on its way from one master to another, one step after the other."""

from oncemq.redis.client import RedisClient
from oncemq.redis.routes import slot_of
from services.waiting import wait_until

TOLD_AT_MOST = 5
"""How often the masters are told that a slot has moved until they agree."""


class MovingSlot:
    """The slot of a key; `begin`, `move_keys` and `end` are what `redis-cli --cluster reshard` does.

    Args:
        client: of the cluster.
        password: of its nodes.
        key: any key of the slot.
    """

    def __init__(self, client: RedisClient, password: str, key: str) -> None:
        self._client = client
        self._password = password
        self._slot = slot_of(key)
        client.refresh()
        self._source = client.routes.place(self._slot)
        self._target = next(place for place in client.routes.masters() if place != self._source)

    def begin(self) -> None:
        """From now on new keys of the slot are made at its target, by anyone who is sent there."""
        self._set(self._target, "IMPORTING", self._id(self._source))
        self._set(self._source, "MIGRATING", self._id(self._target))

    def move_keys(self) -> None:
        """Move all of its keys; clients are still told that the slot lives where it was."""
        at, slot = self._client.at, self._slot
        host, _, port = self._target.rpartition(":")
        keys = at(self._source, "CLUSTER", "GETKEYSINSLOT", slot, 1000)
        if keys:
            login = ("AUTH", self._password)
            assert at(self._source, "MIGRATE", host, port, "", 0, 5000, *login, "KEYS", *keys) == b"OK"

    def end(self) -> None:
        """Tell every master where the slot lives now, its new one first; returns when all of them say so.

        What one says to another may be older than what both were told, and then each names the other for ever:
        none claims the slot. They are told again, with an epoch of the new master that outranks older claims.
        """
        masters, new = self._client.routes.masters(), self._id(self._target)
        for _ in range(TOLD_AT_MOST):
            for place in (self._target, *(master for master in masters if master != self._target)):
                self._set(place, "NODE", new)
            if wait_until(lambda: {self._owner(master) for master in masters} == {new}, seconds=5):
                return
            self._client.at(self._target, "CLUSTER", "BUMPEPOCH")
        raise AssertionError(f"masters do not agree who has slot {self._slot}")

    def _set(self, place: str, what: str, node: str) -> None:
        assert self._client.at(place, "CLUSTER", "SETSLOT", self._slot, what, node) == b"OK"

    def _owner(self, place: str) -> str:
        """Return who has the slot, as a master sees it."""
        for first, last, (_, _, node, *_), *_ in self._client.at(place, "CLUSTER", "SLOTS"):
            if first <= self._slot <= last:
                return str(node.decode())
        return ""

    def _id(self, place: str) -> str:
        return str(self._client.at(place, "CLUSTER", "MYID").decode())
