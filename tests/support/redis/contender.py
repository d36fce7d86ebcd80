"""Who waits for a lock in Redis while its servers change, and what can be seen of that from outside."""

import threading

from oncemq.errors import RedisUnavailable
from oncemq.redis.client import RedisClient
from oncemq.redis.routes import slot_of
from oncemq_strategies.redisson import Lock
from services.waiting import wait_until


class Contender:
    """A thread that wants a lock until it has had it once; what fails for now it tries again.

    Attributes:
        got: it has the lock.
        go_on: it may release it.
    """

    def __init__(self, lock: Lock) -> None:
        self.got, self.go_on = threading.Event(), threading.Event()
        self._lock = lock
        self._thread = threading.Thread(target=self._contend, daemon=True)
        self._thread.start()

    def _contend(self) -> None:
        while not self.got.is_set():
            try:
                with self._lock:
                    self.got.set()
                    self.go_on.wait(60)
            except RedisUnavailable:
                self.go_on.wait(0.05)

    def ended(self) -> bool:
        """Let it release the lock; return whether it did."""
        self.go_on.set()
        self._thread.join(10)
        return not self._thread.is_alive()


def waits(client: RedisClient, name: str) -> bool:
    """Return whether anybody listens for the release of the lock, which comes before a second try of it."""
    channel = f"redisson_lock__channel:{{{name}}}"
    return wait_until(lambda: client.command("PUBSUB", "SHARDNUMSUB", channel, key=name)[1] > 0, seconds=10)


def master_of(client: RedisClient, key: str) -> int:
    """Return the port of the server that has the key now."""
    client.refresh()
    return int(client.routes.place(slot_of(key)).rpartition(":")[2])


def on_replica(client: RedisClient, key: str) -> None:
    """Return when a replica has everything that the key's master has."""
    client.refresh()
    place = client.routes.place(slot_of(key))

    def level() -> bool:
        lines = client.at(place, "INFO", "replication").decode().splitlines()
        known = dict(line.split(":", 1) for line in lines if ":" in line)
        replica = dict(part.split("=") for part in known.get("slave0", "offset=-1").split(","))
        return replica["offset"] == known["master_repl_offset"]

    assert wait_until(level, seconds=10)
