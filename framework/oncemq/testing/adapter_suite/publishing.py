"""Suite part: confirmed messages are stored, and unroutable ones are refused."""

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from time import monotonic

import pytest

from oncemq.contracts.adapter import Confirmed, Refused
from oncemq.errors import BrokerError, BrokerRefused, Unroutable
from oncemq.message.envelope import OutgoingMessage
from oncemq.testing.adapter_suite.base import SuitePart
from oncemq.testing.adapter_suite.bench import Bench, bodies, numbered


class Publishing(SuitePart):
    """Publish, with an answer for each message."""

    def test_one_answer_for_each_message(self, bench: Bench) -> None:
        """As many answers come back as messages were given; none for none."""
        topic = bench.topic()
        bench.open(bench.subscription(topic))
        publisher = bench.publisher()
        messages = [OutgoingMessage(body) for body in numbered(50)]
        answers = publisher.publish(topic.name, topic.options, messages)
        assert [type(answer) for answer in answers] == [Confirmed] * 50
        assert list(publisher.publish(topic.name, topic.options, [])) == []

    def test_unroutable_is_refused(self, bench: Bench) -> None:
        """A message without a destination is refused as unroutable, never silently confirmed."""
        nowhere = bench.harness.unroutable()
        answers = bench.publisher().publish(nowhere.name, nowhere.options, [OutgoingMessage(b"x")] * 3)
        assert len(answers) == 3
        for answer in answers:
            assert isinstance(answer, Refused)
            assert isinstance(answer.error, Unroutable)

    def test_publisher_survives_a_refusal(self, bench: Bench) -> None:
        """After a refusal the same publisher still publishes."""
        topic, nowhere = bench.topic(), bench.harness.unroutable()
        member = bench.open(bench.subscription(topic))
        bench.publisher().publish(nowhere.name, nowhere.options, [OutgoingMessage(b"x")])
        bench.publish(topic, b"y")
        assert bodies(bench.receive(member, 1)) == [b"y"]

    def test_headers_beyond_the_limit_are_refused_alone(self, bench: Bench) -> None:
        """One message whose headers exceed the broker's limit does not fail the others of its call."""
        topic = bench.topic()
        member = bench.open(bench.subscription(topic))
        publisher = bench.publisher()
        limit = publisher.capabilities.max_headers
        sent = numbered(10)
        messages = [OutgoingMessage(body, {"h": "x"}) for body in sent]
        messages[3] = OutgoingMessage(sent[3], {"h": "x" * (200_000 if limit is None else limit + 1)})
        answers = publisher.publish(topic.name, topic.options, messages)
        taken = [body for body, answer in zip(sent, answers, strict=True) if isinstance(answer, Confirmed)]
        assert taken == (sent if limit is None else [*sent[:3], *sent[4:]])
        for answer in answers:
            assert isinstance(answer, Confirmed) or isinstance(answer.error, BrokerRefused)
        assert sorted(bodies(bench.receive(member, len(taken)))) == taken

    def test_publishing_from_many_threads(self, bench: Bench) -> None:
        """Eight threads may publish through one adapter; every message arrives exactly once."""
        topic = bench.topic()
        member = bench.open(bench.subscription(topic))
        publisher, sent = bench.publisher(), numbered(200)

        def publish(start: int) -> None:
            for body in sent[start::8]:
                (answer,) = publisher.publish(topic.name, topic.options, [OutgoingMessage(body)])
                assert isinstance(answer, Confirmed)

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(publish, range(8)))
        assert sorted(bodies(bench.receive(member, 200))) == sent

    def test_a_consuming_adapter_publishes(self, bench: Bench) -> None:
        """The adapter that consumes can also publish, also from a thread of its own choosing."""
        topic = bench.topic()
        member = bench.open(bench.subscription(topic))
        (answer,) = member.adapter.publish(topic.name, topic.options, [OutgoingMessage(b"x")])
        assert isinstance(answer, Confirmed)
        assert bodies(bench.receive(member, 1)) == [b"x"]

    def test_delayed_message_waits(self, bench: Bench) -> None:
        """A message with a delay does not arrive before its time, nor block others, where delays are claimed."""
        bench.only_where("delay")
        topic = bench.topic()
        member = bench.open(bench.subscription(topic))
        started = monotonic()
        bench.publish(topic, OutgoingMessage(b"later", delay=timedelta(seconds=1)), b"now")
        assert bodies(bench.receive(member, 1)) == [b"now"]
        assert bodies(bench.receive(member, 2))[1] == b"later"
        assert monotonic() - started > 0.95

    def test_publishing_before_prepare_confirms_nothing(self, bench: Bench) -> None:
        """An adapter that is not connected refuses to publish."""
        topic = bench.topic()
        adapter = bench.adopt(bench.harness.make_adapter())
        try:
            answers = adapter.publish(topic.name, topic.options, [OutgoingMessage(b"x")])
        except BrokerError:
            return
        assert all(isinstance(answer, Refused) for answer in answers)

    @pytest.mark.parametrize("size", [0, 1])
    def test_tiny_body_arrives(self, bench: Bench, size: int) -> None:
        """An empty body and one of a single byte are either delivered as they are or refused."""
        topic = bench.topic()
        member = bench.open(bench.subscription(topic))
        (answer,) = bench.publisher().publish(topic.name, topic.options, [OutgoingMessage(b"x" * size)])
        if isinstance(answer, Confirmed):
            assert bodies(bench.receive(member, 1)) == [b"x" * size]
        else:
            bench.nothing_more(member, 0)
