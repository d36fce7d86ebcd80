"""Suite part: an acknowledged delivery is gone for ever, an unsettled one is redelivered, and each is settled once."""

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from threading import Event

import pytest

from oncemq.contracts.adapter import DeadLetterRequest
from oncemq.errors import AlreadySettled, DeliveryVoid
from oncemq.testing.adapter_suite.base import SuitePart
from oncemq.testing.adapter_suite.bench import Bench, bodies, later, numbered


class Settling(SuitePart):
    """Acknowledge, give back, and redelivery of unsettled messages."""

    def test_acknowledged_is_final(self, bench: Bench) -> None:
        """An acknowledged message is not delivered again after reopening."""
        topic = bench.topic()
        subscription = bench.subscription(topic)
        member = bench.open(subscription)
        bench.publish(topic, *numbered(5))
        bench.settled(member.adapter.acknowledge(bench.receive(member, 5)))
        bench.nothing_more(bench.reopen(member, subscription), 0)

    def test_unsettled_comes_back(self, bench: Bench) -> None:
        """An unsettled message is delivered again after close, flagged where the flag is claimed."""
        topic = bench.topic()
        subscription = bench.subscription(topic)
        member = bench.open(subscription)
        bench.publish(topic, *numbered(3))
        first = bench.receive(member, 3)
        assert not any(delivery.message.redelivered for delivery in first)
        bench.settled(member.adapter.acknowledge(first[:1]))
        again = bench.receive(bench.reopen(member, subscription), 2)
        assert sorted(bodies(again)) == sorted(bodies(first[1:]))
        assert all(delivery.message.attempt == 1 for delivery in again)
        if bench.harness.capabilities.redelivered_flag:
            assert all(delivery.message.redelivered for delivery in again)

    def test_gap_comes_back_alone(self, bench: Bench) -> None:
        """Acknowledging deliveries behind an unsettled one does not settle it; leaving it charges no attempt."""
        topic = bench.topic()
        subscription = bench.subscription(topic)
        member = bench.open(subscription)
        bench.publish(topic, *numbered(10))
        deliveries = bench.receive(member, 10)
        bench.settled(member.adapter.acknowledge(deliveries[:3]))
        bench.settled(member.adapter.acknowledge(deliveries[4:]))
        again = bench.reopen(member, subscription)
        (gap,) = bench.receive(again, 1)
        assert gap.message.body == deliveries[3].message.body
        assert gap.message.attempt == 1
        bench.nothing_more(again, 1)

    def test_gap_closed_last(self, bench: Bench) -> None:
        """Nothing is redelivered when the gap is settled after everything behind it."""
        topic = bench.topic()
        subscription = bench.subscription(topic)
        member = bench.open(subscription)
        bench.publish(topic, *numbered(10))
        deliveries = bench.receive(member, 10)
        for delivery in reversed(deliveries):
            bench.settled(member.adapter.acknowledge([delivery]))
        bench.nothing_more(bench.reopen(member, subscription), 0)

    def test_settling_from_many_threads(self, bench: Bench) -> None:
        """Eight threads may acknowledge at once; each delivery is settled and none comes back."""
        topic = bench.topic()
        subscription = bench.subscription(topic)
        member = bench.open(subscription)
        bench.publish(topic, *numbered(240))
        deliveries = bench.receive(member, 240)
        shares = [deliveries[start::80] for start in range(80)]
        with ThreadPoolExecutor(8) as pool:
            for failed in pool.map(member.adapter.acknowledge, shares):
                bench.settled(failed)
        bench.nothing_more(bench.reopen(member, subscription), 0)

    def test_settling_several_consumers_at_once(self, bench: Bench) -> None:
        """One call may settle deliveries of several subscriptions."""
        topic = bench.topic()
        first, second = bench.subscription(topic, "one"), bench.subscription(topic, "two")
        member = bench.open(first, second)
        bench.publish(topic, *numbered(4))
        bench.settled(member.adapter.acknowledge(bench.receive(member, 8)))
        bench.nothing_more(bench.reopen(member, first, second), 0)

    def test_one_groups_settlement_is_not_anothers(self, bench: Bench) -> None:
        """A message acknowledged or dead-lettered by one group is still delivered, whole, to another group."""
        topic = bench.topic()
        first, second = bench.subscription(topic, "one"), bench.subscription(topic, "two")
        member = bench.open(first)
        bench.prepare(second)
        bench.publish(topic, *numbered(4))
        mine = bench.receive(member, 4)
        bench.settled(member.adapter.acknowledge(mine[:2]))
        bench.settled(member.adapter.dead_letter([DeadLetterRequest(delivery, {}) for delivery in mine[2:]]))
        assert sorted(bodies(bench.receive(bench.open(second), 4))) == numbered(4)

    @pytest.mark.parametrize("second", ["acknowledge", "retry", "dead_letter", "give_back"])
    def test_second_settlement_surfaces(self, bench: Bench, second: str) -> None:
        """Settling a delivery twice is answered with AlreadySettled, whatever the second settlement is."""
        topic = bench.topic()
        subscription = bench.subscription(topic)
        member = bench.open(subscription)
        bench.publish(topic, b"once")
        (delivery,) = bench.receive(member, 1)
        bench.settled(member.adapter.acknowledge([delivery]))
        adapter = member.adapter
        (failed,) = {
            "acknowledge": lambda: adapter.acknowledge([delivery]),
            "retry": lambda: adapter.retry([later(delivery, 0.01)]),
            "dead_letter": lambda: adapter.dead_letter([DeadLetterRequest(delivery, {})]),
            "give_back": lambda: adapter.give_back([delivery]),
        }[second]()
        assert isinstance(failed.error, AlreadySettled)
        assert failed.delivery is delivery
        bench.nothing_more(bench.reopen(member, subscription), 0)

    def test_same_delivery_twice_in_one_call(self, bench: Bench) -> None:
        """A delivery named twice in one call is settled once, and the second mention surfaces."""
        topic = bench.topic()
        member = bench.open(bench.subscription(topic))
        bench.publish(topic, *numbered(2))
        first, second = bench.receive(member, 2)
        (failed,) = member.adapter.acknowledge([first, second, first])
        assert isinstance(failed.error, AlreadySettled)
        assert failed.delivery is first

    def test_racing_settlements_settle_once(self, bench: Bench) -> None:
        """Of two threads that settle the same delivery exactly one succeeds."""
        topic = bench.topic()
        member = bench.open(bench.subscription(topic))
        bench.publish(topic, *numbered(50))
        deliveries = bench.receive(member, 50)
        with ThreadPoolExecutor(4) as pool:
            answers = list(pool.map(lambda entry: member.adapter.acknowledge([entry]), deliveries * 2))
        failed = [failure for answer in answers for failure in answer]
        assert len(failed) == 50
        assert all(isinstance(entry.error, AlreadySettled) for entry in failed)

    def test_settlement_after_close_is_void(self, bench: Bench) -> None:
        """A delivery of a closed adapter is void, and the message is redelivered."""
        topic = bench.topic()
        subscription = bench.subscription(topic)
        member = bench.open(subscription)
        bench.publish(topic, b"x")
        (delivery,) = bench.receive(member, 1)
        bench.close(member)
        (failed,) = member.adapter.acknowledge([delivery])
        assert isinstance(failed.error, DeliveryVoid)
        assert bodies(bench.receive(bench.open(subscription), 1)) == [b"x"]

    def test_given_back_comes_again_unchanged(self, bench: Bench) -> None:
        """A delivery given back is redelivered at once, no attempt is charged, and only that one."""
        topic = bench.topic()
        member = bench.open(bench.subscription(topic))
        bench.publish(topic, *numbered(3))
        first = bench.receive(member, 3)
        bench.settled(member.adapter.give_back(first[1:2]))
        again = bench.receive(member, 4)[3]
        assert again.message.body == first[1].message.body
        assert again.message.attempt == 1
        bench.settled(member.adapter.acknowledge([first[0], again, first[2]]))

    def test_given_back_goes_to_another_member(self, bench: Bench) -> None:
        """A delivery given back by a paused member goes to another member of the group."""
        bench.only_where("competing")
        topic = bench.topic()
        subscription = bench.subscription(topic)
        member = bench.open(subscription)
        bench.publish(topic, *numbered(3))
        held = bench.receive(member, 3)
        member.adapter.pause(subscription.consumer)
        other = bench.open(subscription)
        bench.settled(member.adapter.give_back(held))
        assert sorted(bodies(bench.receive(other, 3))) == numbered(3)

    def test_extending_keeps_a_delivery(self, bench: Bench) -> None:
        """Extending an unsettled delivery works on every broker, and it can be settled afterwards."""
        topic = bench.topic()
        member = bench.open(bench.subscription(topic))
        bench.publish(topic, b"x")
        deliveries = bench.receive(member, 1)
        bench.settled(member.adapter.extend(deliveries, timedelta(seconds=30)))
        bench.settled(member.adapter.acknowledge(deliveries))

    def test_extending_does_not_get_in_the_way_of_settling(self, bench: Bench) -> None:
        """While one thread extends deliveries, another one settles all of them without a failure."""
        topic = bench.topic()
        subscription = bench.subscription(topic)
        member = bench.open(subscription)
        bench.publish(topic, *numbered(100))
        deliveries = bench.receive(member, 100)
        over = Event()

        def extend() -> None:
            while not over.is_set():
                member.adapter.extend(deliveries, timedelta(seconds=30))

        with ThreadPoolExecutor(1) as pool:
            extending = pool.submit(extend)
            try:
                for delivery in deliveries:
                    bench.settled(member.adapter.acknowledge([delivery]))
            finally:
                over.set()
            extending.result()
        bench.nothing_more(bench.reopen(member, subscription), 0)
