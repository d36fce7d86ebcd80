"""Suite part: a retry comes back to its own group, after its delay, with its headers, and blocks no other message."""

from datetime import UTC, datetime
from time import monotonic

from oncemq.message import headers as names
from oncemq.message.envelope import OutgoingMessage, make_envelope
from oncemq.testing.adapter_suite.base import SuitePart
from oncemq.testing.adapter_suite.bench import Bench, bodies, later, numbered


class Retrying(SuitePart):
    """Retry after a delay."""

    def test_retry_comes_back_changed_only_in_its_headers(self, bench: Bench) -> None:
        """Body, key, id and published time stay; added headers replace existing ones."""
        topic = bench.topic()
        member = bench.open(bench.subscription(topic))
        sent = OutgoingMessage(b"\x00\xffbody", {"tenant": "a", "x": "old"}, "key-1", "id-1")
        bench.publish(topic, sent)
        (first,) = bench.receive(member, 1)
        failed_at = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
        added = {"x": "new", names.FIRST_FAILED_AT: failed_at.isoformat()}
        bench.settled(member.adapter.retry([later(first, 0.1, **added)]))
        again = bench.receive(member, 2)[1].message
        assert (again.body, again.keys, again.message_id) == (sent.body, ("key-1",), "id-1")
        assert (again.headers["tenant"], again.headers["x"]) == ("a", "new")
        assert again.first_failed_at == failed_at
        assert again.attempt == 2
        if bench.harness.capabilities.redelivered_flag:
            assert not again.redelivered  # the retry itself has not been delivered before

    def test_a_handler_sees_the_same_headers_on_a_retry(self, bench: Bench) -> None:
        """Those of the application, and none of the framework's, so that they can be published unchanged."""
        topic = bench.topic()
        member = bench.open(bench.subscription(topic))
        bench.publish(topic, OutgoingMessage(b"x", {"tenant": "a", "tags": "t"}, "key-1", "id-1"))
        (first,) = bench.receive(member, 1)
        added = {names.FIRST_FAILED_AT: "2026-01-02T03:04:05+00:00", names.ERROR_TEXT: "no", names.KEY: "k"}
        bench.settled(member.adapter.retry([later(first, 0.1, **added)]))
        again = bench.receive(member, 2)[1].message
        seen = [
            make_envelope("b", "t", "g", "k", None, "k", received).headers
            for received in (first.message, again)
        ]
        assert seen == [{"tenant": "a", "tags": "t"}] * 2

    def test_retry_keeps_the_published_time(self, bench: Bench) -> None:
        """The published time travels with the retry when the framework sends it along."""
        topic = bench.topic()
        member = bench.open(bench.subscription(topic))
        bench.publish(topic, b"x")
        (first,) = bench.receive(member, 1)
        published_at = datetime(2026, 1, 1, 12, tzinfo=UTC)
        added = {names.PUBLISHED_AT: published_at.isoformat()}
        bench.settled(member.adapter.retry([later(first, 0.05, **added)]))
        assert bench.receive(member, 2)[1].message.published_at == published_at

    def test_retry_settles_the_original(self, bench: Bench) -> None:
        """After retry and acknowledgement nothing is left, including the first delivery."""
        topic = bench.topic()
        subscription = bench.subscription(topic)
        member = bench.open(subscription)
        bench.publish(topic, b"x")
        bench.settled(member.adapter.retry([later(bench.receive(member, 1)[0], 0.05)]))
        bench.settled(member.adapter.acknowledge(bench.receive(member, 2)[1:]))
        bench.nothing_more(bench.reopen(member, subscription), 0)

    def test_retry_waits_its_delay(self, bench: Bench) -> None:
        """A retry does not arrive before its delay is over."""
        topic = bench.topic()
        member = bench.open(bench.subscription(topic))
        bench.publish(topic, b"x")
        (first,) = bench.receive(member, 1)
        started = monotonic()
        bench.settled(member.adapter.retry([later(first, 0.6)]))
        bench.receive(member, 2)
        assert monotonic() - started > 0.55

    def test_retry_is_for_its_own_group(self, bench: Bench) -> None:
        """Another group of the topic does not receive a retry."""
        topic = bench.topic()
        member = bench.open(bench.subscription(topic, "one"), bench.subscription(topic, "two"))
        bench.publish(topic, b"x")
        (mine,) = bench.receive(member, 1, "one")
        bench.receive(member, 1, "two")
        bench.settled(member.adapter.retry([later(mine, 0.05)]))
        bench.receive(member, 2, "one")
        bench.nothing_more(member, 1, "two")

    def test_short_delay_does_not_wait_behind_a_long_one(self, bench: Bench) -> None:
        """A retry in 200 ms arrives in time although a retry in 3 s was requested before it."""
        topic = bench.topic()
        member = bench.open(bench.subscription(topic))
        bench.publish(topic, b"slow", b"quick")
        by_body = {delivery.message.body: delivery for delivery in bench.receive(member, 2)}
        started = monotonic()
        bench.settled(member.adapter.retry([later(by_body[b"slow"], 3), later(by_body[b"quick"], 0.2)]))
        assert bodies(bench.receive(member, 3)[2:]) == [b"quick"]
        assert monotonic() - started < 2
        assert bodies(bench.receive(member, 4)[3:]) == [b"slow"]
        if bench.harness.capabilities.precise_delay:
            assert 2.9 < monotonic() - started < 4.5

    def test_many_retries_at_once(self, bench: Bench) -> None:
        """A hundred retries in one call with ten different delays all come back, each once."""
        topic = bench.topic()
        member = bench.open(bench.subscription(topic))
        bench.publish(topic, *numbered(100))
        first = bench.receive(member, 100)
        bench.settled(
            member.adapter.retry([later(delivery, 0.05 * (n % 10 + 1)) for n, delivery in enumerate(first)])
        )
        again = bench.receive(member, 200)[100:]
        assert sorted(bodies(again)) == numbered(100)
        bench.settled(member.adapter.acknowledge(again))

    def test_attempts_count_up(self, bench: Bench) -> None:
        """The attempt of each further retry is the framework's header."""
        topic = bench.topic()
        member = bench.open(bench.subscription(topic))
        bench.publish(topic, b"x")
        for attempt in range(1, 5):
            latest = bench.receive(member, attempt)[-1]
            assert latest.message.attempt == attempt
            bench.settled(member.adapter.retry([later(latest, 0.05)]))

    def test_waiting_retry_survives_its_member(self, bench: Bench) -> None:
        """A retry that waits for its delay goes to a member of that time."""
        topic = bench.topic()
        subscription = bench.subscription(topic)
        member = bench.open(subscription)
        bench.publish(topic, b"x")
        bench.settled(member.adapter.retry([later(bench.receive(member, 1)[0], 0.8)]))
        again = bench.reopen(member, subscription)
        assert bench.receive(again, 1)[0].message.attempt == 2
