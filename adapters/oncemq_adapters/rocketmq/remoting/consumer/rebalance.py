"""Rebalances queues between members: shares them out as all members do, takes them over, gives them up in order."""

import itertools
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from threading import Event
from time import monotonic

import structlog

from oncemq_adapters.rocketmq.errors import FAILURES, Failure
from oncemq_adapters.rocketmq.remoting.consumer.offset_store import Offsets
from oncemq_adapters.rocketmq.remoting.consumer.process_queue import ProcessQueue, Progress, QueueKey
from oncemq_adapters.rocketmq.remoting.consumer.queue_locks import QueueLocks
from oncemq_adapters.rocketmq_client import codes
from oncemq_adapters.rocketmq_client.admin import committed_offset
from oncemq_adapters.rocketmq_client.codes import Place
from oncemq_adapters.rocketmq_client.connections import Brokers, Routes, TimerThread, allocate
from oncemq_adapters.rocketmq_client.errors import MalformedFrame
from oncemq_adapters.rocketmq_client.names import AVERAGELY
from oncemq_adapters.rocketmq_client.protocol import loose_json


class RetainedQueues:
    """Queues that no member consumes, without deliveries in flight; not thread-safe.

    Args:
        brokers: of the member.
        group: by its real name.
        offsets: of the group.
        handover: the locks.
        tidy: sees to what is unsettled before a queue is left for good.
    """

    def __init__(
        self,
        brokers: Brokers,
        group: str,
        offsets: Offsets,
        handover: QueueLocks,
        tidy: Callable[[ProcessQueue], None],
    ) -> None:
        self._brokers = brokers
        self._group = group
        self._offsets = offsets
        self._handover = handover
        self._tidy = tidy
        self._queues: list[ProcessQueue] = []
        self._log = structlog.get_logger("oncemq")

    def put(self, queue: ProcessQueue) -> None:
        """Commit and unlock a queue: who joins the group meanwhile may have it."""
        # An answer that is on its way brings nothing any more.
        queue.draining = True
        self._queues.append(queue)
        try:
            self._offsets.commit_now(queue)
            self._handover.release(queue)
        except FAILURES as error:
            self._log.warning("offset commit before a pause failed", queue=repr(queue), error=str(error))

    def take(self) -> Mapping[QueueKey, Progress]:
        """Return each queue's progress, to continue there if no other member consumed it."""
        queues, self._queues = self._queues, []
        for queue in queues:
            queue.lose()
        return {queue.key: known for queue in queues if (known := queue.progress()) is not None}

    def leave(self) -> None:
        """Leave for good: settled messages of a queue that no other member consumed are not redelivered."""
        queues, self._queues = self._queues, []
        for queue in queues:
            try:
                if queue.end_of_settled() > (queue.prefix() or 0):
                    self._leave(queue)
            except FAILURES as error:
                self._log.warning("last offset commit of a queue failed", queue=repr(queue), error=str(error))
            finally:
                queue.lose()

    def _leave(self, queue: ProcessQueue) -> None:
        if not self._handover.take(queue):
            return
        connection = self._brokers.get(queue.broker)
        if committed_offset(connection, self._group, queue.topic, queue.number) == queue.committed:
            queue.draining = False
            self._tidy(queue)
            self._offsets.commit_now(queue)
        self._handover.release(queue)


AGAIN = 0.5
"""Seconds until another try when a broker did not answer as it should."""

_DRAIN_SHARE = 0.7
"""Of the hand-over time; the new owner must not begin before the former one has given up."""


class Rebalance:
    """The queues of one member; everything but reading `queues` is the steward's business.

    Args:
        brokers: of the member.
        routes: where topics are.
        group: by its real name.
        client: the member's id.
        starts: where a new group begins, by topic.
        offsets: of the group.
        handover: the locks.
        patience: seconds to wait for a former owner.
        steward: does what has to wait.
        taken: called with a queue that may be pulled from.
        given_up: called with a queue of which nothing can be settled any more; its result is ignored.
        draining: called with a queue that goes to another member.
        tidy: sees to what is unsettled before a queue is left for good.
        insist: a queue is never begun without its lock.
        allocation: the rule by which the members divide the queues.
        shares: queues are divided among the group's members; otherwise all are ours.

    Attributes:
        queues: what is ours.
        generation: the latest assignment's.
        trouble: what is wrong, by topic.
        settled_in: the member has had its first assignment.
        resting: the member has left the group for a while; nothing is taken over until it is back.
        complete: set when it has begun with all of that share.
    """

    def __init__(
        self,
        brokers: Brokers,
        routes: Routes,
        group: str,
        client: str,
        starts: Mapping[str, str | datetime],
        offsets: Offsets,
        handover: QueueLocks,
        patience: float,
        steward: TimerThread,
        taken: Callable[[ProcessQueue], None],
        given_up: Callable[[ProcessQueue], None],
        draining: Callable[[ProcessQueue], None],
        tidy: Callable[[ProcessQueue], None],
        *,
        insist: bool,
        allocation: str = AVERAGELY,
        shares: bool = True,
    ) -> None:
        self.queues: dict[QueueKey, ProcessQueue] = {}
        self.generation = 0
        self.trouble: dict[str, str] = {}
        self.settled_in = False
        self.resting = False
        self.complete = Event()
        self._brokers = brokers
        self._routes = routes
        self._group = group
        self._client = client
        self._starts = starts
        self._offsets = offsets
        self._handover = handover
        self._patience = patience
        self._steward = steward
        self._taken = taken
        self._given_up = given_up
        self._draining = draining
        self._tidy = tidy
        self._insist = insist
        self._allocation = allocation
        self._shares = shares
        self._generations = itertools.count(1)
        self._memory: dict[QueueKey, Progress] = {}
        self._aside = RetainedQueues(brokers, group, offsets, handover, tidy)
        self._stopped = self._planned = self._alone = False
        self._log = structlog.get_logger("oncemq")

    def rebalance(self) -> None:
        """Compute our assignment, and apply it."""
        if self._stopped or self.resting:
            return
        complete = True
        for topic in self._starts:
            try:
                complete = self._rebalance_topic(topic) and complete
                self.trouble.pop(topic, None)
            except FAILURES as error:
                self.trouble[topic] = str(error)
                complete = False
                self._steward.at(AGAIN, self.rebalance_topic, topic)
        self.settled_in = self.settled_in or complete
        self._look_around()

    def rebalance_topic(self, topic: str) -> None:
        """Try again with one topic."""
        if self._stopped or self.resting or topic not in self.trouble:
            return
        try:
            done = self._rebalance_topic(topic)
            self.trouble.pop(topic, None)
            self.settled_in = self.settled_in or (done and not self.trouble)
            self._look_around()
        except FAILURES as error:
            self.trouble[topic] = str(error)
            self._steward.at(AGAIN, self.rebalance_topic, topic)

    def lose(self, broker: str) -> Sequence[ProcessQueue]:
        """Give up the queues of a broker to which the connection was lost; returns them."""
        lost = [queue for queue in list(self.queues.values()) if queue.broker == broker]
        for queue in lost:
            self._forget(queue)
        return lost

    def move(self, key: QueueKey, offset: int) -> None:
        """Restart a queue at another offset, on an administrator's request."""
        queue = self.queues.get(key)
        if queue is None or queue.draining:
            return
        self._log.info(
            "offset of a queue was reset by an administrator",
            queue=repr(queue),
            asked=queue.next,
            goes_on_at=offset,
        )
        self._forget(queue)
        self._memory.pop(key, None)
        self._given_up(queue)
        try:
            self._offsets.move(queue, offset)
        except FAILURES as error:
            self._log.warning("offset reset was not carried out", queue=repr(queue), error=str(error))
        self._rebalance_in(0)

    def release_all(self) -> None:
        """Give up everything, in order: commit, unlock."""
        self._aside.leave()
        self._release()

    def rest(self) -> None:
        """Give up everything for a while; where no other member is there to have it, it keeps its place."""
        self.resting = True
        for queue in list(self.queues.values()) if self._alone else ():
            if queue.next is not None and not queue.draining:
                del self.queues[queue.key]
                self._aside.put(queue)
                self._given_up(queue)
        self._release()

    def wake(self) -> None:
        """Rejoin, and continue where no other member consumed meanwhile."""
        self.resting = False
        self._memory.update(self._aside.take())

    def void_all(self) -> None:
        """Give up everything at once, unsaved: another process has it."""
        for queue in list(self.queues.values()):
            self._forget(queue)
            self._memory.pop(queue.key, None)
            self._given_up(queue)

    def stop(self) -> None:
        """Take nothing any more."""
        self._stopped = True

    def keep_locks(self) -> None:
        """Renew our locks."""
        by_broker: dict[str, list[ProcessQueue]] = {}
        for queue in list(self.queues.values()):
            if queue.next is not None and not queue.draining:
                by_broker.setdefault(queue.broker, []).append(queue)
        for broker, queues in by_broker.items():
            self._handover.keep(broker, queues)

    def _release(self) -> None:
        self.settled_in = False
        self.trouble.clear()
        for queue in list(self.queues.values()):
            self._tidy(queue)
            self._finish(queue)

    def _rebalance_in(self, seconds: float) -> None:
        """Look again soon; once, however many topics and queues want it."""
        if not self._planned:
            self._planned = True
            self._steward.at(seconds, self._as_planned)

    def _as_planned(self) -> None:
        self._planned = False
        self.rebalance()

    def _look_around(self) -> None:
        if self.settled_in and all(queue.next is not None for queue in list(self.queues.values())):
            self.complete.set()

    def _rebalance_topic(self, topic: str) -> bool:
        readable = self._routes.find(topic).readable
        members = self._members(readable)
        if self._client not in members:
            # A broker that was started again does not know us yet.
            self._rebalance_in(0.2)
            return False
        mine = set(allocate(self._allocation, topic, self._client, readable, members))
        for (name, broker, number), queue in list(self.queues.items()):
            if name == topic and (broker, number) not in mine and not queue.draining:
                self._give_up(queue)
        for broker, number in sorted(mine):
            key = topic, broker, number
            if key not in self.queues:
                # A single member does not wait; locks of dead members would only delay it.
                self._begin(key, monotonic() + (self._patience if len(members) > 1 else 0.0))
        return True

    def _members(self, readable: Sequence[Place]) -> Sequence[str]:
        if not readable or not self._shares:
            return [self._client]
        failure: Failure | None = None
        for broker in dict.fromkeys(name for name, _ in readable):
            try:
                self._brokers.check(broker)
                _, body = self._brokers.get(broker).call(codes.CONSUMERS, {"consumerGroup": self._group})
                found = loose_json(body)["consumerIdList"]
                self._alone = found == [self._client]
                return sorted(str(member) for member in found)
            except FAILURES as error:
                failure = error
            except (KeyError, TypeError) as error:
                failure = MalformedFrame(f"a list of members makes no sense: {error!r}")
        raise failure or MalformedFrame("no broker lists the members")

    def fresh_generation(self) -> int:
        """Return a generation that no assignment has; from any thread."""
        return next(self._generations)

    def _begin(self, key: QueueKey, deadline: float) -> None:
        self.generation = next(self._generations)
        queue = self.queues[key] = ProcessQueue(key, self.generation)
        self._take(queue, deadline)

    def _take(self, queue: ProcessQueue, deadline: float) -> None:
        """Begin with a queue once its former owner has unlocked it, or had time enough."""
        if queue.lost or queue.draining or self._stopped or self.queues.get(queue.key) is not queue:
            return
        try:
            self._brokers.check(queue.broker)
            free = self._handover.take(queue)
            if not free and (self._insist or monotonic() < deadline):
                self._steward.at(0.05, self._take, queue, deadline)
                return
            self._offsets.begin(queue, self._starts[queue.topic], self._memory.pop(queue.key, None))
        except FAILURES as error:
            self.trouble[queue.topic] = str(error)
            self._steward.at(AGAIN, self._take, queue, deadline)
            return
        self.trouble.pop(queue.topic, None)
        self._taken(queue)
        self._look_around()

    def _give_up(self, queue: ProcessQueue) -> None:
        queue.draining = True
        self._draining(queue)
        self._drain(queue, monotonic() + self._patience * _DRAIN_SHARE)

    def _drain(self, queue: ProcessQueue, deadline: float) -> None:
        if queue.lost:
            return
        if queue.out.total() and monotonic() < deadline:
            self._steward.at(0.02, self._drain, queue, deadline)
            return
        left = queue.out.total()
        self._finish(queue)
        if left:
            self._log.warning(
                "queue was reassigned before all of its messages were settled", queue=repr(queue), left=left
            )
        # It may have become ours again meanwhile.
        self._rebalance_in(0)

    def _finish(self, queue: ProcessQueue) -> None:
        self._forget(queue)
        try:
            if queue.next is not None:
                self._offsets.commit_now(queue)
                self._handover.release(queue)
        except FAILURES as error:
            self._log.warning("last offset commit of a queue failed", queue=repr(queue), error=str(error))
        self._memory.pop(queue.key, None)
        self._given_up(queue)

    def _forget(self, queue: ProcessQueue) -> None:
        queue.lose()
        if (progress := queue.progress()) is not None:
            self._memory[queue.key] = progress
        if self.queues.get(queue.key) is queue:
            del self.queues[queue.key]
