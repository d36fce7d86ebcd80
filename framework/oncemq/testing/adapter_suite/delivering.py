"""Suite part: published messages arrive, whole, in order, once per group, and within the limit in flight."""

from datetime import UTC, datetime, timedelta

from oncemq.contracts.capabilities import Order
from oncemq.message.envelope import Message, OutgoingMessage
from oncemq.testing.adapter_suite.base import SuitePart
from oncemq.testing.adapter_suite.bench import Bench, bodies, numbered

MEBIBYTE = 1024 * 1024


class Delivering(SuitePart):
    """From publish to the sink."""

    def _through(self, bench: Bench, outgoing: OutgoingMessage) -> Message:
        topic = bench.topic()
        member = bench.open(bench.subscription(topic))
        bench.publish(topic, outgoing)
        return bench.receive(member, 1)[0].message

    def test_topic_is_the_apps_name(self, bench: Bench) -> None:
        """A delivery carries the topic's name in the app, and goes to the subscribed consumer."""
        topic = bench.topic()
        member = bench.open(bench.subscription(topic, consumer="award-points"))
        bench.publish(topic, b"x")
        (delivery,) = bench.receive(member, 1, consumer="award-points")
        assert delivery.message.topic == topic.name
        assert delivery.message.attempt == 1

    def test_binary_body_arrives_unchanged(self, bench: Bench) -> None:
        """All 256 byte values, NUL included, arrive unchanged."""
        body = bytes(range(256)) * 3
        assert self._through(bench, OutgoingMessage(body)).body == body

    def test_large_body_arrives_unchanged(self, bench: Bench) -> None:
        """A body of one mebibyte arrives whole."""
        body = bytes(range(256)) * (MEBIBYTE // 256)
        assert self._through(bench, OutgoingMessage(body)).body == body

    def test_headers_arrive_unchanged(self, bench: Bench) -> None:
        """Empty, long and Unicode header values arrive as they were sent."""
        headers = {"empty": "", "unicode": "Ærø 東京 🚕", "blank": "  a b ", "long": "x" * 2000}
        received = self._through(bench, OutgoingMessage(b"x", headers)).headers
        assert {name: received.get(name) for name in headers} == headers

    def test_content_type_is_a_header(self, bench: Bench) -> None:
        """`content-type` and `content-encoding` arrive under these names."""
        headers = {"content-type": "application/json", "content-encoding": "gzip"}
        received = self._through(bench, OutgoingMessage(b"x", headers)).headers
        assert {name: received.get(name) for name in headers} == headers

    def test_key_arrives(self, bench: Bench) -> None:
        """The producer's business key is the first of the message's keys."""
        assert self._through(bench, OutgoingMessage(b"x", key="ordér-1")).keys == ("ordér-1",)

    def test_no_key_is_no_key(self, bench: Bench) -> None:
        """A message without a key has none; none is invented."""
        assert self._through(bench, OutgoingMessage(b"x")).keys == ()

    def test_message_id_arrives(self, bench: Bench) -> None:
        """The producer's message id arrives unchanged."""
        assert self._through(bench, OutgoingMessage(b"x", message_id="id-4711")).message_id == "id-4711"

    def test_published_time_is_now(self, bench: Bench) -> None:
        """The published time is aware and close to now; brokers may round it to seconds."""
        published_at = self._through(bench, OutgoingMessage(b"x")).published_at
        assert published_at is not None
        assert abs(published_at - datetime.now(UTC)) < timedelta(seconds=30)

    def test_order_is_kept(self, bench: Bench) -> None:
        """Messages of one topic, or of one key, arrive in the order of publishing, where that order is claimed."""
        topic = bench.topic()
        member = bench.open(bench.subscription(topic))
        sent = numbered(200)
        messages = [OutgoingMessage(body, key="one") for body in sent]
        bench.publish(topic, *messages[:100])
        bench.publish(topic, *messages[100:])
        received = bodies(bench.receive(member, 200))
        assert (received if bench.harness.capabilities.order is not Order.NONE else sorted(received)) == sent

    def test_every_group_gets_every_message(self, bench: Bench) -> None:
        """Groups do not take messages from each other, in one adapter or in two."""
        topic = bench.topic()
        first, second, third = (bench.subscription(topic, group) for group in ("one", "two", "three"))
        both, alone = bench.open(first, second), bench.open(third)
        bench.publish(topic, *numbered(20))
        for member, group in ((both, "one"), (both, "two"), (alone, "three")):
            assert sorted(bodies(bench.receive(member, 20, group))) == numbered(20)

    def test_a_group_gets_what_came_while_it_was_away(self, bench: Bench) -> None:
        """A registered group receives messages that are published while none of its members runs."""
        topic = bench.topic()
        subscription = bench.subscription(topic)
        bench.close(bench.open(subscription))
        bench.publish(topic, *numbered(5))
        assert sorted(bodies(bench.receive(bench.open(subscription), 5))) == numbered(5)

    def test_members_of_a_group_share(self, bench: Bench) -> None:
        """Two members get different messages, and together every one exactly once, where sharing is claimed."""
        bench.only_where("competing")
        topic = bench.topic()
        subscription = bench.subscription(topic, in_flight=5)
        members = [bench.open(subscription), bench.open(subscription)]
        bench.publish(topic, *numbered(40))
        seen: list[bytes] = []
        taken = [0, 0]

        def drain() -> bool:
            for number, member in enumerate(members):
                fresh = member.sink.deliveries()[taken[number] :]
                taken[number] += len(fresh)
                seen.extend(bodies(fresh))
                bench.settled(member.adapter.acknowledge(fresh))
            return len(seen) >= 40

        for member in members:
            bench.receive(member, 5)
        bench.eventually(drain, "40 messages on two members")
        assert sorted(seen) == numbered(40)

    def test_no_more_than_in_flight(self, bench: Bench) -> None:
        """The adapter stops at `in_flight` unsettled deliveries and goes on as they are settled."""
        topic = bench.topic()
        member = bench.open(bench.subscription(topic, in_flight=4))
        bench.publish(topic, *numbered(20))
        first = bench.receive(member, 4)
        bench.nothing_more(member, 4)
        bench.settled(member.adapter.acknowledge(first[:2]))
        bench.receive(member, 6)
        bench.nothing_more(member, 6)

    def test_in_flight_of_one_consumer_does_not_hold_up_another(self, bench: Bench) -> None:
        """A consumer that settles nothing does not block its neighbour on the same adapter."""
        slow, quick = bench.topic("slow"), bench.topic("quick")
        member = bench.open(
            bench.subscription(slow, "slow", in_flight=1), bench.subscription(quick, "quick", in_flight=10)
        )
        bench.publish(slow, *numbered(3))
        bench.publish(quick, *numbered(3))
        assert sorted(bodies(bench.receive(member, 3, "quick"))) == numbered(3)
        assert len(bench.receive(member, 1, "slow")) == 1

    def test_paused_consumer_receives_nothing(self, bench: Bench) -> None:
        """Nothing new arrives between pause and resume, and received deliveries can be settled meanwhile."""
        topic = bench.topic()
        member = bench.open(bench.subscription(topic, "one", in_flight=3))
        bench.publish(topic, *numbered(3))
        held = bench.receive(member, 3)
        member.adapter.pause("one")
        bench.publish(topic, b"later 1", b"later 2")
        bench.settled(member.adapter.acknowledge(held))
        bench.nothing_more(member, 3)
        member.adapter.resume("one")
        assert sorted(bodies(bench.receive(member, 5))[3:]) == [b"later 1", b"later 2"]
