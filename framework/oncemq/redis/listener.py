"""Listens for published messages: one thread per connection; in a cluster to both ways of publishing."""

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from oncemq.errors import InfrastructureError, RedisRefused
from oncemq.redis.client import RedisClient
from oncemq.redis.faults import as_ours, is_answer, moved
from oncemq.redis.routes import slot_of

_LOOK_EVERY = 0.5
_PAUSE = 0.2
_STABLE = 1.0
"""Seconds; a connection that lasted this long counts as good."""


class Subscription:
    """A subscriber of a channel.

    Args:
        channel: its name.
        told: called from the listener's thread for each message, and whenever messages may have been missed:
            after the subscription was confirmed and after each reconnection. Must be quick.

    Attributes:
        confirmed: set once the server has confirmed the subscription.
    """

    def __init__(self, channel: str, told: Callable[[], None]) -> None:
        self.channel = channel
        self.told = told
        self.confirmed = threading.Event()


class Listener:
    """All subscriptions of one client.

    Args:
        client: its servers are listened to.
    """

    def __init__(self, client: RedisClient) -> None:
        self._client = client
        self._mutex = threading.RLock()
        self._ears: dict[tuple[str, bool], Ear] = {}
        self._closed = False
        client.before_closing(self.close)

    def subscribe(self, channel: str, told: Callable[[], None]) -> Subscription:
        """Return a subscription; the server confirms it a moment later.

        In a cluster messages come by PUBLISH to every node and by SPUBLISH to the channel's own node; either one
        is enough to confirm: our publishers use both, others use one of them.
        """
        subscription = Subscription(channel, told)
        for ear in self._ears_for(channel):
            ear.add(subscription)
        return subscription

    def unsubscribe(self, subscription: Subscription) -> None:
        """Remove a subscription."""
        with self._mutex:
            ears = list(self._ears.values())
        for ear in ears:
            ear.remove(subscription)

    def close(self) -> None:
        """End all threads; no subscriber is called any more."""
        with self._mutex:
            self._closed = True
            ears, self._ears = list(self._ears.values()), {}
        for ear in ears:
            ear.stop()

    def _ears_for(self, channel: str) -> list["Ear"]:
        routes = self._client.routes
        wanted = [(routes.masters()[0], False)]
        if routes.clustered:
            with suppress(Exception):
                wanted.append((routes.place(slot_of(channel)), True))
        with self._mutex:
            plain = [key for key in self._ears if not key[1]]
            if plain:
                wanted[0] = plain[0]
            for key in wanted:
                if key not in self._ears and not self._closed:
                    self._ears[key] = Ear(self._client, *key, self._moved)
            return [self._ears[key] for key in wanted if key in self._ears]

    def _moved(self, ear: "Ear", subscriptions: list[Subscription]) -> None:
        """Subscribe on other servers to what this connection cannot receive any more."""
        with self._mutex:
            if self._closed:
                return
            for key in [key for key, known in self._ears.items() if known is ear]:
                del self._ears[key]
        with suppress(Exception):
            self._client.refresh()
        for subscription in subscriptions:
            with suppress(Exception):
                for other in self._ears_for(subscription.channel):
                    other.add(subscription)


class Ear:
    """One connection and its thread.

    Args:
        client: its routes make the connection.
        place: the server.
        sharded: receives SPUBLISH, not PUBLISH.
        moved: called when this server is gone or has lost a channel's slot.
    """

    def __init__(
        self,
        client: RedisClient,
        place: str,
        sharded: bool,
        moved: Callable[["Ear", list[Subscription]], None],
    ) -> None:
        self._client = client
        self._place = place
        self._prefix = "S" if sharded else ""
        self._moved = moved
        self._mutex = threading.RLock()
        self._by_channel: dict[str, list[Subscription]] = {}
        self._connection: Any = None
        self._gone = False
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._listen, name=f"oncemq-redis-{place}", daemon=True)
        self._thread.start()

    def add(self, subscription: Subscription) -> None:
        """Subscribe to this channel; on another server if this one has just gone."""
        if not self._added(subscription):
            self._moved(self, [subscription])

    def _added(self, subscription: Subscription) -> bool:
        with self._mutex:
            if self._gone:
                return False
            mine = self._by_channel.setdefault(subscription.channel, [])
            if subscription in mine:
                return True
            mine.append(subscription)
            heard_already = any(other.confirmed.is_set() for other in mine[:-1])
            if len(mine) == 1:
                self._say("SUBSCRIBE", subscription.channel)
        if heard_already:
            subscription.confirmed.set()
            subscription.told()
        return True

    def remove(self, subscription: Subscription) -> None:
        """Unsubscribe from the channel if no other subscriber needs it."""
        with self._mutex:
            mine = self._by_channel.get(subscription.channel)
            if mine is None or subscription not in mine:
                return
            mine.remove(subscription)
            if not mine:
                del self._by_channel[subscription.channel]
                self._say("UNSUBSCRIBE", subscription.channel)

    def stop(self) -> None:
        """End the thread."""
        self._stopped.set()
        self._drop()
        if threading.current_thread() is not self._thread:
            self._thread.join(2)

    def _say(self, verb: str, channel: str) -> None:
        connection = self._connection
        if connection is not None:
            try:
                connection.send_packed_command(
                    connection.pack_command(self._prefix + verb, channel), check_health=False
                )
            except Exception:
                self._drop()

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(Exception):
                connection.disconnect()

    def _listen(self) -> None:
        failures = 0
        while not self._stopped.is_set():
            began = time.monotonic()
            try:
                self._hear()
            except Exception as error:
                self._drop()
                if is_answer(error) and isinstance(as_ours(error, self._place, sent=True), RedisRefused):
                    return  # a server before Redis 7 has no SSUBSCRIBE; PUBLISH remains
                failures = 1 if time.monotonic() - began > _STABLE else failures + 1
                if moved(error) or (failures > 1 and self._elsewhere()):
                    self._leave()
                    return
                self._stopped.wait(_PAUSE)

    def _leave(self) -> None:
        with self._mutex:
            left = [subscription for mine in self._by_channel.values() for subscription in mine]
            self._by_channel.clear()
            self._gone = True
        if not self._stopped.is_set():
            self._moved(self, left)

    def _elsewhere(self) -> bool:
        """Return whether another server may now have the channels of this server."""
        try:
            return self._client.clustered
        except InfrastructureError:
            return False

    def _hear(self) -> None:
        """Connect, subscribe to all channels and read until something fails."""
        connection = self._client.routes.own(self._place)
        connection.connect()
        with self._mutex:
            self._connection = connection
            # A command each: a sharded server refuses channels of several slots in one command.
            for channel in self._by_channel:
                self._say("SUBSCRIBE", channel)
        while not self._stopped.is_set() and self._connection is connection:
            if connection.can_read(_LOOK_EVERY):
                self._take(connection.read_response())
        if not self._stopped.is_set():
            raise ConnectionError("the connection was given up")

    def _take(self, answer: Any) -> None:
        kind, channel = _text(answer[0]), _text(answer[1])
        if kind == "sunsubscribe":
            self._lost_slot(channel)
        if kind.endswith("unsubscribe"):
            return
        with self._mutex:
            mine = list(self._by_channel.get(channel, ()))
        for subscription in mine:
            if kind.endswith("subscribe"):
                subscription.confirmed.set()
            subscription.told()

    def _lost_slot(self, channel: str) -> None:
        """Resubscribe elsewhere: the server itself unsubscribes us when a slot moves away."""
        with self._mutex:
            still_wanted = channel in self._by_channel
        if still_wanted:
            raise ConnectionError("the channel's slot has moved")


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
