"""Suite part: a member dies or lets its leases expire, and another member gets its deliveries."""

from datetime import timedelta
from time import monotonic

from oncemq.errors import DeliveryVoid
from oncemq.message.envelope import Delivery
from oncemq.testing.adapter_suite.base import SuitePart
from oncemq.testing.adapter_suite.bench import Bench, Member, bodies, numbered
from oncemq.testing.adapter_suite.holder import Holder

LEASE = timedelta(seconds=1)


class Losing(SuitePart):
    """SIGKILL of a member, and leases."""

    def test_killed_process_loses_nothing(self, bench: Bench) -> None:
        """Deliveries held by a process that was killed with SIGKILL go to another member, flagged where claimed."""
        topic = bench.topic()
        held = bench.subscription(topic, in_flight=4)
        bench.prepare(held)
        bench.publish(topic, *numbered(10))
        with Holder(bench.harness, held, count=4) as holder:
            holder.wait_until_holding(bench.harness.patience)
            member = bench.open(bench.subscription(topic))
            while_alive = self._taken_beside(bench, member)
            holder.kill()
            # As the engine does: the held deliveries must outlast the leases of the dead process.
            bench.settled(member.adapter.extend(while_alive, timedelta(seconds=60)))
        after = bench.receive(member, 10)[len(while_alive) :]
        assert sorted(bodies([*while_alive, *after])) == numbered(10)
        if bench.harness.capabilities.redelivered_flag:
            assert all(delivery.message.redelivered for delivery in after)
        bench.settled(member.adapter.acknowledge([*while_alive, *after]))

    def _taken_beside(self, bench: Bench, member: Member) -> list[Delivery]:
        """Return a member's deliveries of ten messages while another member holds four."""
        if not bench.harness.capabilities.partitioned:
            received = bench.receive(member, 6)
            bench.nothing_more(member, 6)
            return received
        # The broker decides which queues it gets, and their contents: all but those held by the other.
        member.sink.stays_at(6, bench.harness.silence)
        return member.sink.deliveries()

    def test_expiry_is_told(self, bench: Bench) -> None:
        """A delivery reports when its lease ends; None where no leases are claimed."""
        topic = bench.topic()
        leases = bench.harness.capabilities.lease
        adapter = bench.harness.leasing_adapter(LEASE) if leases else None
        member = bench.open(bench.subscription(topic), adapter=adapter)
        before = monotonic()
        bench.publish(topic, b"x")
        (delivery,) = bench.receive(member, 1)
        if not leases:
            assert delivery.expires_at is None
        else:
            assert delivery.expires_at is not None
            assert before < delivery.expires_at <= monotonic() + LEASE.total_seconds()

    def test_expired_delivery_goes_to_another(self, bench: Bench) -> None:
        """When a lease ends, another member gets the message, and the former holder can no longer settle it."""
        bench.only_where("lease")
        topic = bench.topic()
        subscription = bench.subscription(topic)
        slow = bench.open(subscription, adapter=bench.harness.leasing_adapter(LEASE))
        bench.publish(topic, b"x")
        (stale,) = bench.receive(slow, 1)
        slow.adapter.pause(subscription.consumer)
        quick = bench.open(subscription)
        (fresh,) = bench.receive(quick, 1)
        assert fresh.message.redelivered
        assert fresh.message.attempt == 1
        (failed,) = slow.adapter.acknowledge([stale])
        assert isinstance(failed.error, DeliveryVoid)
        bench.settled(quick.adapter.acknowledge([fresh]))

    def test_extended_delivery_stays(self, bench: Bench) -> None:
        """A delivery extended in time goes to no other member and can be settled late."""
        bench.only_where("lease")
        topic = bench.topic()
        subscription = bench.subscription(topic)
        slow = bench.open(subscription, adapter=bench.harness.leasing_adapter(LEASE))
        bench.publish(topic, b"x")
        held = bench.receive(slow, 1)
        bench.settled(slow.adapter.extend(held, timedelta(seconds=30)))
        assert held[0].expires_at is not None
        assert held[0].expires_at > monotonic() + 20
        slow.adapter.pause(subscription.consumer)
        quick = bench.open(subscription)
        assert quick.sink.stays_at(0, LEASE.total_seconds() + 0.5)
        bench.settled(slow.adapter.acknowledge(held))

    def test_expired_delivery_frees_its_place(self, bench: Bench) -> None:
        """A delivery unsettled when its lease ended does not count as in flight for ever."""
        bench.only_where("lease")
        topic = bench.topic()
        adapter = bench.harness.leasing_adapter(timedelta(seconds=0.5))
        member = bench.open(bench.subscription(topic, in_flight=1), adapter=adapter)
        bench.publish(topic, b"x")
        first, again = bench.receive(member, 2)[:2]
        assert first.message.body == again.message.body == b"x"
        bench.settled(member.adapter.acknowledge([again]))
