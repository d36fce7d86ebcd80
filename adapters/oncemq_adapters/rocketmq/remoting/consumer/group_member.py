"""One member of one group: says that it lives, has its share of the queues, delivers from them and commits."""

import itertools
import json
import re
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from threading import Lock
from time import monotonic

from oncemq.contracts.adapter import ConsumerHealth, Sink, Subscription
from oncemq.contracts.broadcast import Broadcast
from oncemq.errors import ConfigError
from oncemq_adapters.rocketmq.address import Address
from oncemq_adapters.rocketmq.errors import FAILURES
from oncemq_adapters.rocketmq.names import group_of, parse_topic
from oncemq_adapters.rocketmq.remoting.consumer.broadcast import (
    RENEW_EVERY,
    InstanceLock,
    LedgerOffsets,
)
from oncemq_adapters.rocketmq.remoting.consumer.broker_recovery import BrokerRecovery
from oncemq_adapters.rocketmq.remoting.consumer.consume_rates import SAMPLE_EVERY, ConsumeRates
from oncemq_adapters.rocketmq.remoting.consumer.direct_runs import DirectRuns
from oncemq_adapters.rocketmq.remoting.consumer.offset_store import Offsets
from oncemq_adapters.rocketmq.remoting.consumer.prefetch_window import PrefetchWindow
from oncemq_adapters.rocketmq.remoting.consumer.process_queue import ProcessQueue, QueueKey
from oncemq_adapters.rocketmq.remoting.consumer.puller import SUSPEND, FlowControl, Puller
from oncemq_adapters.rocketmq.remoting.consumer.queue_locks import KEEP_EVERY, QueueLocks
from oncemq_adapters.rocketmq.remoting.consumer.rebalance import Rebalance
from oncemq_adapters.rocketmq.remoting.consumer.subscriptions import Part, Subscriptions
from oncemq_adapters.rocketmq.remoting.consumer.unsettled_gap import tidy
from oncemq_adapters.rocketmq.remoting.withheld_brokers import withheld_brokers
from oncemq_adapters.rocketmq_client import codes
from oncemq_adapters.rocketmq_client.admin import begin_group
from oncemq_adapters.rocketmq_client.connections import GroupMembership, Routes, TimerThread
from oncemq_adapters.rocketmq_client.errors import RocketMQError, RocketMQUnavailable
from oncemq_adapters.rocketmq_client.names import FIRST, retry_topic
from oncemq_adapters.rocketmq_client.protocol import BROADCASTING, SHARING, Deferred, Frame, StoredMessage

_MOVE = re.compile(rb"(\{[^{}]*\})\s*:\s*(-?\d+)")


def moves(body: bytes) -> Iterator[tuple[QueueKey, int]]:
    """Yield each queue and the offset at which it shall go on; RocketMQ writes objects as keys, which is no JSON."""
    for text, offset in _MOVE.findall(body):
        with suppress(ValueError, KeyError, TypeError):
            named = json.loads(text)
            yield (str(named["topic"]), str(named["brokerName"]), int(named["queueId"])), int(offset)


COMMIT_EVERY = 0.5
COMMIT_ALL_EVERY = 20
"""Commits; a broker loses one of two first commits of a group that meet, so all are repeated now and then."""

REBALANCE_EVERY = 20.0
SETTLE_IN = 1.2
"""Seconds for which opening waits for queues that another member hands over."""


Move = Callable[[ProcessQueue, str, Sequence[StoredMessage]], Sequence[StoredMessage]]
"""Told (queue, group, messages)."""


class Member:
    """One client id in one group, with connections and a thread of its own.

    Args:
        address: how to connect.
        routes: where topics are.
        group: by its real name.
        parts: the subscriptions, by the topic's real name.
        app: the app's name, for the client id.
        move: publishes messages of a queue to the group's retries; returns those that are safe there.
        broadcast: this instance gets all messages; None = the group's members share them.
    """

    def __init__(
        self,
        address: Address,
        routes: Routes,
        group: str,
        parts: Mapping[str, Part],
        app: str,
        move: Move,
        broadcast: Broadcast | None = None,
    ) -> None:
        self.group = group
        self.fifo = any(part.options.fifo for part in parts.values())
        self.parts = Subscriptions(parts)
        self.windows = self.parts.windows
        version = round(time.time() * 1000)
        # Java's broadcasting members have no retries on the broker either; those of ours are in the ledger.
        topics = (*self.parts.topics, *(() if broadcast is not None else (retry_topic(group),)))
        model = SHARING if broadcast is None else BROADCASTING
        self._presence = GroupMembership(app, group, topics, self.parts.selection, version, model)
        self.brokers = withheld_brokers(address, routes, self._presence.hello, self._asked, self._lost)
        self.steward = TimerThread(f"oncemq-rocketmq-{group}")
        self._lookout = TimerThread(f"oncemq-rocketmq-{group}-routes")
        self.offsets: Offsets = (
            Offsets(
                self.brokers,
                group,
                lambda topic, start: begin_group(
                    self.brokers, routes.ask(topic).readable, topic, group, start
                ),
            )
            if broadcast is None
            else LedgerOffsets(broadcast, self.brokers, routes, group)
        )
        self._instance = (
            InstanceLock(broadcast, self.brokers, group, self._presence.client)
            if broadcast is not None
            else None
        )
        self._address = address
        self._routes = routes
        self._commits = itertools.count(1)
        self._move = move
        self._closed = False
        self._error = ""
        self._lock = Lock()
        self.puller = Puller(self.brokers, group, version, self.parts, self.steward, one_by_one=self.fifo)
        self._returned = BrokerRecovery(
            routes,
            topics,
            self._lookout,
            lambda: self.steward.at(0, self.assignment.rebalance),
        )
        starts = dict.fromkeys(topics, FIRST) | {topic: part.options.start for topic, part in parts.items()}
        self.assignment = Rebalance(
            self.brokers,
            routes,
            group,
            self._presence.client,
            starts,
            self.offsets,
            self._instance or QueueLocks(self.brokers, group, self._presence.client, fifo=self.fifo),
            address.handover.total_seconds(),
            self.steward,
            self.puller.pull,
            self._given_up,
            self._draining,
            self._tidy,
            insist=self.fifo or broadcast is not None,
            allocation=next(iter(parts.values())).options.allocation,
            shares=broadcast is None,
        )
        self._room = FlowControl(
            f"oncemq-rocketmq-{group}-room",
            self.assignment.queues,
            self.offsets,
            self.puller,
            lambda: self.steward.at(0, self._leave_if_idle),
        )
        self._rates = ConsumeRates(lambda: list(self.assignment.queues.values()))
        self._direct = DirectRuns(self.parts, self.brokers, self.assignment.fresh_generation, fifo=self.fifo)
        for window in self.windows:
            window.on_settled = self._room.settled

    def start(self) -> None:
        """Join the group and take over our share; returns when that is done, or others are slow.

        Raises:
            BrokerError: a topic is missing, no broker can be reached, or one refuses us.
        """
        wanted = self._wanted_brokers()
        connected = self.brokers.reached(wanted)
        self.steward.start()
        self._lookout.start()
        for broker in wanted:
            if broker not in connected:
                self._seek(broker, RocketMQUnavailable(f"RocketMQ's broker {broker!r} cannot be reached"))
        self._room.steward.start()
        self.steward.at(0, self.assignment.rebalance)
        self.steward.every(self._address.heartbeat.total_seconds(), self._beat)
        self.steward.every(COMMIT_EVERY, self._commit_all)
        self.steward.every(REBALANCE_EVERY, self.assignment.rebalance)
        self.steward.every(KEEP_EVERY, self.assignment.keep_locks)
        self.steward.every(5.0, self._watch)
        self.steward.every(SAMPLE_EVERY, self._rates.sample)
        if self._instance is not None:
            self.steward.every(RENEW_EVERY, partial(self._renew, self._instance))
        self.assignment.complete.wait(SETTLE_IN)

    def health(self) -> Sequence[ConsumerHealth]:
        """Return a row for each consumer."""
        trouble = self._trouble()
        holder = self._instance.holder if self._instance is not None and not trouble else ""
        there, _, _ = holder.partition("/")
        elsewhere = bool(there) and there != socket.gethostname()[: len(there)]
        detail = trouble or (f"its instance's messages are consumed by process {holder}" if holder else "")
        if elsewhere:
            detail += ", on another machine: give each machine an instance: of its own"
        fine = not trouble and not elsewhere
        return [ConsumerHealth(window.consumer, subscribed=fine, detail=detail) for window in self.windows]

    def pause(self, consumer: str) -> None:
        """Deliver nothing more to a consumer; a member all of whose consumers rest leaves the group for that time."""
        for window in self.windows:
            if window.consumer == consumer:
                window.pause()
        self.steward.at(0, self._leave_if_idle)

    def resume(self, consumer: str) -> None:
        """Deliver again."""
        for window in self.windows:
            if window.consumer == consumer:
                window.resume()
        self.steward.at(0, self._return)

    def close(self) -> None:
        """Leave the group: commit, unlock, unregister."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        for window in self.windows:
            window.pause()
        self.assignment.stop()
        # A slow name server is not waited for.
        self._lookout.stop(0)
        self._room.steward.stop(10.0)
        self.steward.stop(10.0)
        self.assignment.release_all()
        if self._instance is not None:
            with suppress(*FAILURES):
                self._instance.end()
        self._presence.farewell(self.brokers.alive().values())
        self.brokers.close()

    def _trouble(self) -> str:
        if self._closed:
            return "closed"
        alive = self.brokers.alive()
        missing = [name for name in self._wanted_brokers() if name not in alive]
        if missing:
            return self._error or f"not connected to RocketMQ's broker {missing[0]!r}"
        troubles = [*self.assignment.trouble.values(), *self.puller.trouble.values()]
        if troubles:
            return troubles[0]
        if self.assignment.resting:
            return ""
        return "" if self.assignment.settled_in else "not a member of the group yet"

    def _wanted_brokers(self) -> Sequence[str]:
        found: dict[str, None] = {}
        for topic in self.parts.topics:
            found.update(dict.fromkeys(name for name, _ in self._routes.find(topic).readable))
        return list(found)

    def _beat(self) -> None:
        self._error = self._presence.beat(self.brokers.alive().values()) or self._error

    def _watch(self) -> None:
        """Give up connections by which nothing comes any more, although polls must end after a while."""
        for queue in list(self.assignment.queues.values()):
            if queue.pulling and monotonic() - queue.pulled_at > SUSPEND + 10:
                connection = self.brokers.alive().get(queue.broker)
                if connection is not None:
                    connection.close("a poll was not answered")

    def _lost(self, broker: str) -> None:
        """Follow the loss of a connection; on that connection's thread."""
        if self._closed:
            return
        lost = self.assignment.lose(broker)
        if self.assignment.queues:
            for queue in lost:
                self._given_up(queue)
        else:
            for queue in lost:
                self._drop(queue)
            for window in self.windows:
                window.lost(self.assignment.generation, alone=False)
        self._seek(broker, RocketMQUnavailable(f"the connection to RocketMQ's broker {broker!r} was lost"))

    def _seek(self, broker: str, why: RocketMQError) -> None:
        """Try to reach a broker again, on the lookout's thread: a frozen one takes seconds to fail, and others go on."""
        self.brokers.away(broker, why)
        self._lookout.at(0.02, self._revive, broker)

    def _revive(self, broker: str) -> None:
        if self._closed:
            return
        try:
            self.brokers.get(broker)
        except RocketMQError as error:
            self._error = str(error)
            self.brokers.away(broker, error)
            self._lookout.at(0.2, self._revive, broker)
            return
        self._error = ""
        self.brokers.away(broker, None)
        self._returned.use(broker)

    def _asked(self, broker: str, frame: Frame) -> bytes | Deferred | None:
        """Answer the broker; on a connection's thread."""
        if frame.code == codes.CONSUMERS_CHANGED:
            self.steward.at(0, self._commit_all)
            self.steward.at(0, self.assignment.rebalance)
        elif frame.code == codes.RESET_OFFSET:
            self.steward.at(0, self._reset, frame.body)
        elif frame.code == codes.RUNNING_INFO:
            return self._presence.running_info(
                list(self.assignment.queues.values()),
                self._rates.by_topic(),
                fifo=self.fifo,
                servers=";".join(self._address.name_servers),
            )
        elif frame.code == codes.CONSUME_DIRECTLY and not self._closed and self._instance is None:
            return self._direct.run(broker, frame)
        return None

    def _reset(self, body: bytes) -> None:
        """Follow an administrator who moved the group."""
        for key, offset in moves(body):
            self.assignment.move(key, offset)

    def _draining(self, queue: ProcessQueue) -> None:
        for window in self.parts.windows_of(queue):
            window.drop(queue, lost=False)

    def _tidy(self, queue: ProcessQueue) -> None:
        if not self.fifo and self._instance is None:
            tidy(queue, self.parts, self.brokers, partial(self._move, queue, self.group))

    def _given_up(self, queue: ProcessQueue) -> None:
        held = {window: queue.out[window] for window in self.parts.windows_of(queue)}
        self._drop(queue)
        for window, count in held.items():
            if count or not self._closed:
                window.lost(queue.generation, alone=True)
            # What it had out is never settled, so that would not make the others look for room.
            self._room.more(window, queue)

    def _drop(self, queue: ProcessQueue) -> None:
        for window in self.parts.windows_of(queue):
            window.drop(queue, lost=True)
        self.puller.trouble.pop(queue, None)

    def _commit_all(self) -> None:
        everything = next(self._commits) % COMMIT_ALL_EVERY == 0
        for queue in list(self.assignment.queues.values()):
            self.offsets.commit(queue, even_if_same=everything)
        self.offsets.flush()

    def _renew(self, instance: InstanceLock) -> None:
        """Go on being the process of the instance; where another one is it by now, give up everything."""
        held = instance.ours
        # A ledger that is away keeps handlers from running, too: there is nothing to give up.
        with suppress(*FAILURES):
            if not instance.renew() and held:
                self.assignment.void_all()
                self.assignment.rebalance()

    def _leave_if_idle(self) -> None:
        resting = all(window.paused and not window.out for window in self.windows)
        if resting and not self.assignment.resting and not self._closed:
            self._presence.consuming = False
            self.assignment.rest()
            self._presence.farewell(self.brokers.alive().values())

    def _return(self) -> None:
        if self.assignment.resting and not self._closed:
            self._presence.consuming = True
            self.assignment.wake()
            self._beat()
            self.assignment.rebalance()
        for queue in list(self.assignment.queues.values()):
            self.puller.pull(queue)


def members_of(
    subscriptions: Sequence[Subscription], address: Address, routes: Routes, sink: Sink, app: str, move: Move
) -> Sequence[Member]:
    """Return a member for each group.

    Raises:
        ConfigError: two consumers would share a group in a way that RocketMQ cannot do.
    """
    groups: dict[str, dict[str, Part]] = {}
    broadcasts = {
        group_of(subscription, address.namespace): subscription.broadcast
        for subscription in subscriptions
        if subscription.broadcast is not None
    }
    for subscription in subscriptions:
        topic = parse_topic(subscription.topic, subscription.options, address.namespace)
        group = group_of(subscription, address.namespace)
        parts = groups.setdefault(group, {})
        if topic.name in parts:
            other = parts[topic.name].window.consumer
            text = f"consumers {other!r} and {subscription.consumer!r} have the same topic and group {subscription.group!r}"
            raise ConfigError([f"{text}: each would get a part of the messages – give one another group:"])
        window = PrefetchWindow(
            subscription.consumer, subscription.topic, group, subscription.in_flight, sink
        )
        parts[topic.name] = Part(topic, window)
    for group, parts in groups.items():
        if group in broadcasts and len(parts) > 1:
            raise ConfigError(
                [f"group {group!r} is one of a broadcast – give each of its consumers a group: of its own"]
            )
        if len({part.options.fifo for part in parts.values()}) > 1:
            raise ConfigError(
                [
                    f"some topics of group {group!r} are fifo and some are not – give the fifo ones another group:"
                ]
            )
        if len(rules := {part.options.allocation for part in parts.values()}) > 1:
            text = f"topics of group {group!r} have different rules of allocation: {', '.join(sorted(rules))}"
            raise ConfigError([f"{text} – a group has one, for all of its topics"])
    return [
        Member(address, routes, group, parts, app, move, broadcasts.get(group))
        for group, parts in groups.items()
    ]
