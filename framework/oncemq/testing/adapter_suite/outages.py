"""Suite part: the broker stops or a connection breaks; no message is lost, settled twice, or unreported."""

from collections.abc import Callable, Sequence
from datetime import timedelta
from threading import Event, Thread

import pytest

from oncemq.contracts.adapter import Refused
from oncemq.errors import DeliveryVoid, SettleError
from oncemq.message.envelope import Delivery, OutgoingMessage
from oncemq.testing.adapter_suite.base import SuitePart
from oncemq.testing.adapter_suite.bench import Bench, Member, bodies, later, numbered
from oncemq.testing.adapter_suite.harness import AdapterHarness


def restart(bench: Bench, member: Member) -> None:
    """Stop the broker until the member reports that it is not subscribed, then start it."""
    bench.harness.stop()
    bench.eventually(lambda: not bench.subscribed(member), "health to notice the outage")
    bench.harness.start()


def cut(bench: Bench, member: Member) -> None:
    """Break the connection; returns when the member has noticed, where there is a loss to report."""
    bench.harness.cut()
    if not bench.harness.capabilities.outlives_connection:
        member.sink.wait_for_loss(bench.harness.patience)


def keep(bench: Bench, member: Member, held: Sequence[Delivery]) -> None:
    """Extend leased deliveries beyond any outage, as the engine does all the time."""
    if bench.harness.capabilities.lease:
        bench.settled(member.adapter.extend(held, timedelta(seconds=60)))


FAULTS = pytest.mark.parametrize("fault", [restart, cut])
Fault = Callable[[Bench, Member], None]


class Outages(SuitePart):
    """Restart of the broker and a cut connection."""

    @FAULTS
    def test_consuming_resumes(self, bench: Bench, fault: Fault) -> None:
        """After the fault the member is subscribed again by itself and receives messages published then."""
        topic = bench.topic()
        member = bench.open(bench.subscription(topic))
        assert bench.subscribed(member)
        fault(bench, member)
        bench.eventually(lambda: bench.subscribed(member), "the consumer to be subscribed again")
        fresh = bench.prepare()
        (answer,) = fresh.publish(topic.name, topic.options, [OutgoingMessage(b"after")])
        assert not isinstance(answer, Refused), answer.error
        assert bodies(bench.receive(member, 1)) == [b"after"]

    @FAULTS
    def test_unsettled_come_back_and_the_old_ones_are_void(self, bench: Bench, fault: Fault) -> None:
        """The loss is reported; old deliveries are void and settle nothing, new ones of a higher generation settle."""
        bench.only_where_not("outlives_connection")
        topic = bench.topic()
        subscription = bench.subscription(topic)
        member = bench.open(subscription)
        bench.publish(topic, *numbered(10))
        old = bench.receive(member, 10)
        fault(bench, member)
        losses = member.sink.wait_for_loss(bench.harness.patience)
        assert {entry.consumer for entry in losses} == {subscription.consumer}
        new = bench.receive(member, 20)[10:]
        assert sorted(bodies(new)) == numbered(10)
        lost = max(entry.generation for entry in losses)
        assert all(entry.generation <= lost for entry in old)
        assert all(entry.generation > lost for entry in new)
        failed = member.adapter.acknowledge(old)
        assert [type(entry.error) for entry in failed] == [DeliveryVoid] * 10
        bench.settled(member.adapter.acknowledge(new[:5]))
        again = bench.reopen(member, subscription)
        assert sorted(bodies(bench.receive(again, 5))) == sorted(bodies(new[5:]))

    @FAULTS
    def test_leased_stay_ours(self, bench: Bench, fault: Fault) -> None:
        """Where leases outlive the connection, nothing is redelivered, and held deliveries can be settled later."""
        bench.only_where("outlives_connection")
        topic = bench.topic()
        subscription = bench.subscription(topic)
        member = bench.open(subscription)
        bench.publish(topic, *numbered(10))
        keep(bench, member, bench.receive(member, 10))
        fault(bench, member)
        bench.eventually(lambda: bench.subscribed(member), "the consumer to be subscribed again")
        bench.publish(topic, b"after")
        held = bench.receive(member, 11)
        assert sorted(bodies(held)) == sorted([*numbered(10), b"after"])
        assert member.sink.losses() == []
        bench.settled(member.adapter.acknowledge(held[:5]))
        again = bench.reopen(member, subscription)
        assert sorted(bodies(bench.receive(again, 6))) == sorted(bodies(held[5:]))

    @FAULTS
    def test_acknowledged_before_the_fault_is_final(self, bench: Bench, fault: Fault) -> None:
        """Deliveries acknowledged and confirmed before the fault are not redelivered after it."""
        topic = bench.topic()
        subscription = bench.subscription(topic)
        member = bench.open(subscription)
        bench.publish(topic, *numbered(10))
        deliveries = bench.receive(member, 10)
        bench.settled(member.adapter.acknowledge(deliveries[:9]))
        bench.eventually(lambda: bench.subscribed(member), "the consumer to be subscribed")
        again = bench.reopen(member, subscription)
        keep(bench, again, bench.receive(again, 1))
        fault(bench, again)
        if bench.harness.capabilities.outlives_connection:
            bench.eventually(lambda: bench.subscribed(again), "the consumer to be subscribed again")
            bench.nothing_more(again, 1)
        else:
            assert bodies(bench.receive(again, 2)) == bodies(deliveries[9:]) * 2

    @FAULTS
    def test_every_consumer_resumes(self, bench: Bench, fault: Fault) -> None:
        """Two consumers of one adapter both receive again, and both are notified of the loss, if any."""
        first, second = bench.topic("one"), bench.topic("two")
        member = bench.open(bench.subscription(first, "one"), bench.subscription(second, "two"))
        bench.publish(first, b"1")
        bench.publish(second, b"2")
        keep(bench, member, bench.receive(member, 2))
        fault(bench, member)
        if bench.harness.capabilities.outlives_connection:
            bench.publish(first, b"3")
            bench.publish(second, b"4")
        bench.receive(member, 2, "one")
        bench.receive(member, 2, "two")
        if not bench.harness.capabilities.outlives_connection:
            assert {loss.consumer for loss in member.sink.losses()} == {"one", "two"}

    def test_paused_consumer_stays_paused(self, bench: Bench) -> None:
        """A cut connection does not wake a paused consumer; resume does."""
        topic = bench.topic()
        member = bench.open(bench.subscription(topic, "one"))
        member.adapter.pause("one")
        bench.publish(topic, b"x")
        cut(bench, member)
        bench.nothing_more(member, 0)
        member.adapter.resume("one")
        assert bodies(bench.receive(member, 1)) == [b"x"]

    def test_confirmed_survives_a_restart(self, bench: Bench) -> None:
        """Confirmed messages survive a restart of the broker, where that is claimed."""
        bench.only_where("survives_restart")
        topic = bench.topic()
        subscription = bench.subscription(topic)
        bench.close(bench.open(subscription))
        bench.publish(topic, *numbered(20))
        bench.harness.stop()
        bench.harness.start()
        assert sorted(bodies(bench.receive(bench.open(subscription), 20))) == numbered(20)

    def test_publishing_into_an_outage_is_refused(self, bench: Bench, harness: AdapterHarness) -> None:
        """While the broker is away nothing is confirmed; afterwards the same publisher works again."""
        topic = bench.topic()
        subscription = bench.subscription(topic)
        bench.close(bench.open(subscription))
        publisher = bench.publisher()
        harness.stop()
        (answer,) = publisher.publish(topic.name, topic.options, [OutgoingMessage(b"lost")])
        assert isinstance(answer, Refused)
        harness.start()

        def published() -> bool:
            (answer,) = publisher.publish(topic.name, topic.options, [OutgoingMessage(b"kept")])
            return not isinstance(answer, Refused)

        bench.eventually(published, "the publisher to work again")
        assert b"kept" in bodies(bench.open(subscription).sink.wait_for(1, harness.patience))

    def test_retry_into_an_outage_loses_nothing(self, bench: Bench) -> None:
        """A retry that cannot be published is reported as failed, and the message is redelivered."""
        topic = bench.topic()
        member = bench.open(bench.subscription(topic))
        bench.publish(topic, b"x")
        (delivery,) = bench.receive(member, 1)
        bench.harness.stop()
        (failed,) = member.adapter.retry([later(delivery, 0.05)])
        assert failed.delivery is delivery
        bench.eventually(lambda: not bench.subscribed(member), "health to notice the outage")
        bench.harness.start()
        if bench.harness.capabilities.outlives_connection and not bench.harness.capabilities.lease:
            # It is still ours, and nothing redelivers it but the next try, which the engine makes.
            bench.eventually(
                lambda: not member.adapter.retry([later(delivery, 0.05)]), "the retry to be published"
            )
        assert bodies(member.sink.wait_for(2, bench.harness.patience)[1:2]) == [b"x"]

    def test_nothing_is_lost_while_messages_flow(self, bench: Bench) -> None:
        """Two cuts in a stream of acknowledged messages lose none, and nothing is left at the end.

        Acknowledgements in flight at a cut never arrive: those messages are delivered once more, at the latest to the
        next member, and no more than were in flight. Once they are acknowledged undisturbed, nothing is redelivered.
        """
        topic = bench.topic()
        subscription = bench.subscription(topic, in_flight=20)
        member = bench.open(subscription)
        done: set[bytes] = set()
        over = Event()

        def work() -> None:
            taken, held = 0, list[Delivery]()
            while not over.is_set():
                fresh = member.sink.deliveries()[taken:]
                taken += len(fresh)
                held += fresh
                failed = {id(entry.delivery): entry for entry in member.adapter.acknowledge(held)}
                done.update(entry.message.body for entry in held if id(entry) not in failed)
                held = [
                    entry.delivery for entry in failed.values() if not isinstance(entry.error, SettleError)
                ]
                over.wait(0.002)

        worker = Thread(target=work)
        worker.start()
        try:
            bench.publish(topic, *numbered(300))
            for share in (60, 160):
                bench.eventually(lambda share=share: len(done) >= share, f"{share} of 300")  # type: ignore[misc]
                bench.harness.cut()
            bench.eventually(lambda: len(done) == 300, "all 300")
        finally:
            over.set()
            worker.join()
        member = bench.reopen(member, subscription)
        bench.eventually(lambda: bench.subscribed(member), "a subscription")
        acknowledged, again = -1, list[Delivery]()
        while len(again) > acknowledged:
            acknowledged = len(again)
            member.sink.stays_at(acknowledged, bench.harness.silence)
            again = list(member.sink.deliveries())
            bench.settled(member.adapter.acknowledge(again[acknowledged:]))
        assert len(again) <= 2 * subscription.in_flight, bodies(again)
        assert {entry.message.body for entry in again} <= set(numbered(300))
        bench.nothing_more(bench.reopen(member, subscription), 0)
