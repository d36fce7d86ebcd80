"""Consumes one subscription: a thread that polls, delivers, commits, and gives up revoked partitions in order."""

import contextlib
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from threading import Event, Lock, Thread
from time import monotonic
from typing import Any

import structlog
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from oncemq.contracts.adapter import ConsumerHealth, Sink, Subscription
from oncemq.errors import BrokerUnavailable, Undecodable
from oncemq.message.envelope import Delivery
from oncemq_adapters.kafka.address import Address
from oncemq_adapters.kafka.assignment import ASK, Assignment, Key, Window, first_offset
from oncemq_adapters.kafka.commits import Commits
from oncemq_adapters.kafka.errors import NOWHERE, error_of
from oncemq_adapters.kafka.names import Place
from oncemq_adapters.kafka.progress import Progress
from oncemq_adapters.kafka.records import read_message, unreadable
from oncemq_adapters.kafka.tracker import Entry, PartitionTracker, decode

_log = structlog.get_logger("oncemq.kafka")
_GLANCE = 0.1
_TOGETHER = 500
_BLOCKED = 0.2
"""Seconds without room after which partitions are paused, so that polling can go on."""
_LEAVE_AFTER = 2.0
"""Seconds for which a paused member that holds nothing keeps its partitions."""
_STEADY_AFTER = 60.0
"""Seconds after which a session counts as one that worked: the pauses after its end begin with the shortest."""
_PAUSES = (0.2, 0.5, 1.0, 2.0, 5.0)


class GroupMember:
    """One member of a group.

    Args:
        address: of the cluster.
        subscription: what is consumed.
        place: its topics.
        sink: receives the deliveries.
        name: what the cluster's operators see.
        window: of the subscription, which its members share.
        retries: it reads the retries, not the topic.
    """

    def __init__(
        self,
        address: Address,
        subscription: Subscription,
        place: Place,
        sink: Sink,
        name: str,
        window: Window,
        *,
        retries: bool,
    ) -> None:
        self.consumer = subscription.consumer
        self.place = place
        self._address = address
        self._topic = subscription.topic
        topic, group = place.topic.name, place.group
        self._reads, self._group = (place.retries, place.retry_group) if retries else (topic, group)
        self._sink = sink
        self._name = name
        self._assignment = Assignment(place.retries)
        self._window = window
        window.members.append(self)
        self._client: Any = None
        self._held: set[Key] = set()
        self._given_back: deque[Entry] = deque()
        self._lock = Lock()
        self._wake = Event()
        self._stopping = Event()
        self._abandoning = False
        self._paused_since: float | None = None
        self._left = False
        self._blocked_since: float | None = None
        self._commits = Commits(self.consumer, self._assignment)
        self._progress = Progress(self.consumer)
        self._thread = Thread(target=self._run, name=f"oncemq-kafka-{self.consumer}", daemon=True)

    # Called from any thread

    @property
    def out(self) -> int:
        """How many deliveries are out and unsettled."""
        return self._assignment.out

    def start(self) -> None:
        """Begin to join the group."""
        self._thread.start()

    def wait_until_joined(self, seconds: float) -> None:
        """Return when it has its first partitions, or none because others have them all.

        Raises:
            BrokerUnavailable: that did not happen in time.
        """
        if not self._progress.joined.wait(seconds):
            trouble = self._progress.problem or "the group did not answer"
            raise BrokerUnavailable(f"consumer {self.consumer!r} at Kafka {self._address.shown}: {trouble}")

    def stop(self) -> None:
        """Receive no more."""
        self._stopping.set()
        self._wake.set()

    def finish(self, seconds: float) -> None:
        """Wait until it has left the group; unsettled deliveries are void."""
        self._thread.join(seconds)
        self._progress.closed()

    def pause(self) -> None:
        """Receive no more until `resume`."""
        if self._paused_since is None:
            self._paused_since = monotonic()
            self._wake.set()

    def resume(self) -> None:
        """Receive again."""
        self._paused_since = None
        self._wake.set()

    def health(self) -> ConsumerHealth:
        """Return whether partitions are assigned, brokers are there, and positions follow their ends."""
        return self._progress.health()

    def give_back(self, entries: Iterable[Entry]) -> None:
        """Return claimed messages that were never started: they are delivered again, here or by the next owner."""
        with self._lock:
            for entry in entries:
                entry.tracker.give_back(entry)
                self._given_back.append(entry)
        self._wake.set()

    def settled(self) -> None:
        """Tell members that wait for room."""
        for member in self._window.members:
            if member._blocked_since is not None:
                member._wake.set()

    # The polling thread

    def _run(self) -> None:
        tries = 0
        while not self._stopping.is_set():
            began = monotonic()
            try:
                self._session()
            except Exception as error:
                if monotonic() - began > _STEADY_AFTER:
                    tries = 0
                found = error_of(error)
                self._progress.trouble(found.str() if found is not None else str(error))
                _log.warning("consumer-starts-again", consumer=self.consumer, error=self._progress.problem)
                self._void(list(self._assignment.trackers), tell=True)
                self._close()
                self._stopping.wait(_PAUSES[min(tries, len(_PAUSES) - 1)])
                tries += 1

    def _session(self) -> None:
        settings = self._address.member_of(self._group, self._name, self.consumer)
        self._client = Consumer(
            settings
            | {
                "on_commit": self._commits.answered,
                "stats_cb": self._on_statistics,
                "error_cb": self._on_error,
            }
        )
        self._subscribe()
        while not self._stopping.is_set():
            self._step()
        self._abandoning = True
        self._void(list(self._assignment.trackers), tell=False, commit=True)
        self._close()

    def _subscribe(self) -> None:
        self._client.subscribe(
            [self._reads],
            on_assign=self._on_assign,
            on_revoke=self._on_revoke,
            on_lost=self._on_lost,
        )
        self._left = False

    def _close(self) -> None:
        client, self._client = self._client, None
        self._held.clear()
        if client is not None:
            client.close()

    def _step(self) -> None:
        assignment = self._assignment
        if self._given_back:
            with self._lock:
                returned, self._given_back = list(self._given_back), deque()
            assignment.return_first(entry for entry in returned if not entry.tracker.void)
        assignment.make_due_ready()
        self._deliver()
        self._leave_or_join()
        self._commits.send(self._client, self._assignment.changed())
        room = self._window.room() - len(assignment.ready)
        paused = self._paused_since is not None
        if room <= 0 and not paused and not self._is_blocked():
            self._wake.wait(0.02)
            self._wake.clear()
            return
        if room > 0:
            self._blocked_since = None
        self._wake.clear()
        self._hold(everything=paused or room <= 0)
        raw = self._client.poll(assignment.seconds_to_due(_GLANCE))
        if raw is None:
            return
        self._take(raw)
        if room > 1 and not paused:
            for raw in self._client.consume(min(room - 1, _TOGETHER), 0):
                self._take(raw)
        self._deliver()

    def _is_blocked(self) -> bool:
        now = monotonic()
        if self._blocked_since is None:
            self._blocked_since = now
        return now - self._blocked_since > _BLOCKED

    def _take(self, raw: Any) -> None:
        error = raw.error()
        if error is None:
            self._assignment.take(raw)
        elif error.code() == KafkaError._AUTO_OFFSET_RESET:
            self._messages_are_gone(raw)
        else:
            self._progress.trouble(error.str())
            if error.fatal():
                raise KafkaException(error)

    def _deliver(self) -> None:
        ready = self._assignment.ready
        if not ready or self._paused_since is not None:
            return
        entries: list[Entry] = []
        with self._window.lock:
            room = self._window.room()
            while ready and room > 0:
                entry = ready.popleft()
                if entry.tracker.deliver(entry):
                    entries.append(entry)
                    room -= 1
        if entries:
            self._sink.deliver([self._delivery(entry) for entry in entries], self.consumer)

    def _delivery(self, entry: Entry) -> Delivery:
        from_group = entry.tracker.topic == self.place.retries
        try:
            message = read_message(self._topic, entry.raw, from_group=from_group)
            refusal = None
        except Exception as error:
            message = unreadable(self._topic, entry.raw)
            refusal = Undecodable(f"the record's headers cannot be read: {error}")
        delivery = Delivery(message, entry, entry.tracker.generation)
        delivery.refusal = refusal
        return delivery

    def _hold(self, *, everything: bool) -> None:
        """Pause and resume partitions; each only once, since librdkafka drops what it has fetched."""
        wanted = {key for key in self._assignment.trackers if everything or self._assignment.is_full(key)}
        pause, resume = wanted - self._held, (self._held - wanted) & self._assignment.trackers.keys()
        if pause:
            self._client.pause([TopicPartition(*key) for key in pause])
        if resume:
            self._client.resume([TopicPartition(*key) for key in resume])
        self._held = wanted

    def _leave_or_join(self) -> None:
        since = self._paused_since
        if since is None:
            if self._left:
                self._subscribe()
        elif not self._left and not self._assignment.out and monotonic() - since > _LEAVE_AFTER:
            # Others may have its partitions; the next owner gets what was given back.
            self._left = True
            self._void(list(self._assignment.trackers), tell=False, commit=True)
            self._abandoning = True
            self._client.unsubscribe()
            end = monotonic() + ASK
            while self._client.assignment() and monotonic() < end:
                self._client.poll(_GLANCE)
            self._abandoning = False

    # Assignments: called by the client inside of poll

    def _on_assign(self, client: Any, partitions: Sequence[TopicPartition]) -> None:
        for partition, start, ahead in self._starts(client, partitions):
            partition.offset = start
            self._assignment.add(
                PartitionTracker(
                    self,
                    partition.topic,
                    partition.partition,
                    next(self._window.generations),
                    max(0, start),
                    ahead,
                )
            )
        client.incremental_assign(list(partitions))
        # The client keeps what was paused paused, also over a loss; nothing of these is held now.
        client.resume(list(partitions))
        self._progress.assigned()

    def _starts(
        self, client: Any, partitions: Sequence[TopicPartition]
    ) -> list[tuple[TopicPartition, int, list[range]]]:
        if not partitions:
            return []
        committed = self._insist(lambda: _committed(client, partitions))
        if committed is None:
            return []
        found = []
        for partition, known in zip(partitions, committed, strict=True):
            if known.offset >= 0:
                found.append((partition, known.offset, decode(known.offset, known.metadata)))
            else:
                found.append((partition, first_offset(client, self._insist, self.place, partition), []))
        return found

    def _insist(self, ask: Callable[[], Any]) -> Any:
        """Return the answer of a broker, asked until it comes; None when stopping."""
        while not self._stopping.is_set():
            try:
                return ask()
            except KafkaException as error:
                found = error_of(error)
                self._progress.trouble(found.str() if found is not None else str(error))
                self._stopping.wait(0.2)
                if found is not None and found.code() in NOWHERE:
                    self._renew_metadata()
        return None

    def _renew_metadata(self) -> None:
        """Ask what partitions there are: the group may assign one that was added after the client had last asked.

        By itself the client asks every half minute, and until then it does not know the partition.
        """
        with contextlib.suppress(KafkaException):
            self._client.list_topics(self._reads, timeout=ASK)

    def _on_revoke(self, client: Any, partitions: Sequence[TopicPartition]) -> None:
        keys = [(partition.topic, partition.partition) for partition in partitions]
        if not self._abandoning:
            self._drain(keys)
            self._void(keys, tell=True, commit=True)
        self._held -= set(keys)
        client.incremental_unassign(list(partitions))

    def _on_lost(self, client: Any, partitions: Sequence[TopicPartition]) -> None:
        keys = [(partition.topic, partition.partition) for partition in partitions]
        self._void(keys, tell=True)
        self._held -= set(keys)
        self._progress.lost()
        client.incremental_unassign(list(partitions))

    def _drain(self, keys: Sequence[Key]) -> None:
        """Wait until nothing of these partitions runs any more, or the time is over."""
        trackers = [self._assignment.trackers[key] for key in keys if key in self._assignment.trackers]
        end = monotonic() + self._address.handover.total_seconds()
        while True:
            for tracker in trackers:
                for delivery in self._sink.release(self.consumer, tracker.generation):
                    tracker.give_back(delivery.token)
            if not any(tracker.out for tracker in trackers) or monotonic() > end:
                return
            if self._stopping.wait(0.01):
                return

    def _void(self, keys: Sequence[Key], *, tell: bool, commit: bool = False) -> None:
        trackers = [self._assignment.trackers[key] for key in keys if key in self._assignment.trackers]
        for tracker in trackers:
            tracker.make_void()
        if commit and self._client is not None:
            self._commits.send_now(self._client, trackers)
        self._assignment.remove(keys)
        for tracker in trackers:
            if tell and tracker.out:
                self._sink.lost(self.consumer, tracker.generation, alone=True)

    # What the client tells

    def _on_statistics(self, text: str) -> None:
        self._progress.statistics(text, self._assignment.trackers, self._held)

    def _on_error(self, error: KafkaError) -> None:
        known = self._progress.refused
        self._progress.error(error)
        if self._progress.refused and not known:
            _log.error(
                "broker-refuses-member",
                consumer=self.consumer,
                error=self._progress.refused,
                advice="it is tried again; correct username, password, sasl or the files for TLS, or the broker's rights",
            )

    def _messages_are_gone(self, raw: Any) -> None:
        """Go on at the first message that is still there, and say that others were removed before they were read."""
        partition = TopicPartition(raw.topic(), raw.partition())
        tracker = self._assignment.trackers.get((raw.topic(), raw.partition()))
        answer = self._insist(lambda: self._client.get_watermark_offsets(partition, timeout=ASK))
        if tracker is None or answer is None:
            return
        low, high = answer
        _log.error(
            "messages-removed-unread",
            consumer=self.consumer,
            topic=raw.topic(),
            partition=raw.partition(),
            next=tracker.next,
            first=low,
            advice="they were removed by the topic's retention, or the topic was made again; make its retention longer",
        )
        partition.offset = low if tracker.next < low else high
        tracker.next = partition.offset
        # A partition whose fetching has ended cannot be moved; one that is assigned again can.
        self._client.incremental_unassign([TopicPartition(raw.topic(), raw.partition())])
        self._client.incremental_assign([partition])


def _committed(client: Any, partitions: Sequence[TopicPartition]) -> Sequence[TopicPartition]:
    """Return what the group has committed in each partition.

    Raises:
        KafkaException: it is not known for one of them; the client would say "nothing was committed" there.
    """
    found: Sequence[TopicPartition] = client.committed(list(partitions), timeout=ASK)
    for partition in found:
        if partition.error is not None:
            raise KafkaException(partition.error)
    return found
