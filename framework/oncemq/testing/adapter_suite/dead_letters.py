"""Suite part: a dead letter keeps everything, and can be listed without side effects, replayed, and deleted."""

from datetime import UTC, datetime, timedelta

from oncemq.contracts.adapter import (
    Adapter,
    Confirmed,
    DeadLetter,
    DeadLetterRequest,
    ParkedDeadLetter,
    Subscription,
)
from oncemq.contracts.capabilities import Order
from oncemq.message import headers as names
from oncemq.message.envelope import Message, OutgoingMessage
from oncemq.testing.adapter_suite.base import SuitePart
from oncemq.testing.adapter_suite.bench import Bench, Member, bodies, later, numbered
from oncemq.testing.adapter_suite.harness import Topic


class DeadLetters(SuitePart):
    """Dead-letter, list, replay, purge; where browsing is denied, only that the message no longer blocks others."""

    def _bury(self, bench: Bench, subscription: Subscription, *sent: bytes | OutgoingMessage) -> Member:
        """Return a member that has dead-lettered these, in this order; it receives nothing else.

        Plain bodies have one key, so that they arrive in order where the order is per key.
        """
        member = bench.open(subscription)
        keyed = [OutgoingMessage(item, key="one") if isinstance(item, bytes) else item for item in sent]
        bench.publish(Topic(subscription.topic, subscription.options), *keyed)
        cause = {names.REASON: "rejected", names.ERROR_TEXT: "no such ordér"}
        received = bench.receive(member, len(sent))
        if bench.harness.capabilities.order is Order.NONE:
            received.sort(key=lambda item: item.message.body)
        dead = [DeadLetterRequest(item, cause) for item in received]
        bench.settled(member.adapter.dead_letter(dead))
        return member

    def _listed(self, adapter: Adapter, subscription: Subscription, limit: int = 100) -> list[DeadLetter]:
        return list(adapter.dead_letters(subscription, limit))

    def test_dead_letter_is_not_delivered_again(self, bench: Bench) -> None:
        """A dead-lettered message is not delivered again, also after reopening."""
        subscription = bench.subscription(bench.topic())
        member = self._bury(bench, subscription, b"x")
        bench.nothing_more(bench.reopen(member, subscription), 0)

    def test_a_hostile_message_holds_up_no_other(self, bench: Bench) -> None:
        """Hostile messages, one that is rejected and a good one: all are delivered once and settle, all on one connection."""
        topic = bench.topic()
        subscription = bench.subscription(topic)
        member = bench.open(subscription)
        hostile = bench.harness.send_hostile(topic, bench.publisher())
        bench.publish(topic, OutgoingMessage(b"bad", key="one"), OutgoingMessage(b"good", key="one"))
        received = {each.message.body: each for each in bench.receive(member, len(hostile) + 2)}
        assert received.keys() == {*hostile, b"bad", b"good"}
        assert len({each.generation for each in received.values()}) == 1
        assert {each.message.attempt for each in received.values()} == {1}
        good = received.pop(b"good")
        cause = {names.REASON: "rejected", names.ATTEMPT: "1", names.ERROR_TEXT: "e" * 2000}
        bench.settled(
            member.adapter.dead_letter([DeadLetterRequest(each, cause) for each in received.values()])
        )
        bench.settled(member.adapter.acknowledge([good]))
        if bench.harness.capabilities.browse_dead_letters:
            letters = self._listed(member.adapter, subscription)
            assert sorted(each.message.body for each in letters) == sorted([*hostile, b"bad"])
            assert {each.message.headers[names.REASON] for each in letters} == {"rejected"}

    def test_dead_letter_keeps_body_headers_and_cause(self, bench: Bench) -> None:
        """Original bytes, headers, keys and id are kept together with the added cause and the time."""
        bench.only_where("browse_dead_letters")
        subscription = bench.subscription(bench.topic())
        sent = OutgoingMessage(b"\x00\xffnot json", {"tenant": "a", "empty": ""}, "key-1", "id-1")
        member = self._bury(bench, subscription, sent)
        (letter,) = self._listed(member.adapter, subscription)
        message = letter.message
        assert (message.body, message.keys, message.message_id) == (sent.body, ("key-1",), "id-1")
        assert (message.headers["tenant"], message.headers["empty"]) == ("a", "")
        assert message.headers[names.REASON] == "rejected"
        assert message.headers[names.ERROR_TEXT] == "no such ordér"
        assert letter.dead_at is not None
        assert abs(letter.dead_at - datetime.now(UTC)) < timedelta(seconds=30)

    def test_listing_takes_nothing_away(self, bench: Bench) -> None:
        """Listing twice gives the same letters with the same ids, oldest first, at most `limit`."""
        bench.only_where("browse_dead_letters")
        subscription = bench.subscription(bench.topic())
        member = self._bury(bench, subscription, *numbered(5))
        first = self._listed(member.adapter, subscription)
        assert [letter.message.body for letter in first] == numbered(5)
        assert [letter.id for letter in self._listed(member.adapter, subscription)] == [
            letter.id for letter in first
        ]
        assert len(self._listed(member.adapter, subscription, limit=2)) == 2

    def test_abandoned_listing_takes_nothing_away(self, bench: Bench) -> None:
        """An abandoned listing leaves every letter in place."""
        bench.only_where("browse_dead_letters")
        subscription = bench.subscription(bench.topic())
        member = self._bury(bench, subscription, *numbered(5))
        listing = member.adapter.dead_letters(subscription, 100)
        next(listing)
        del listing
        assert len(self._listed(member.adapter, subscription)) == 5

    def test_dead_letters_belong_to_their_group(self, bench: Bench) -> None:
        """One group does not see another group's dead letters."""
        bench.only_where("browse_dead_letters")
        topic = bench.topic()
        first, second = bench.subscription(topic, "one"), bench.subscription(topic, "two")
        member = bench.open(first, second)
        bench.publish(topic, b"x")
        bench.settled(member.adapter.dead_letter([DeadLetterRequest(bench.receive(member, 1, "one")[0], {})]))
        assert len(self._listed(member.adapter, first)) == 1
        assert self._listed(member.adapter, second) == []

    def test_replay_starts_over(self, bench: Bench) -> None:
        """A replayed letter has its own headers, a fresh attempt and no cause; it is no longer listed."""
        bench.only_where("browse_dead_letters")
        topic = bench.topic()
        subscription = bench.subscription(topic)
        member = bench.open(subscription)
        bench.publish(topic, OutgoingMessage(b"\x00x", {"tenant": "a"}, "key-1", "id-1"))
        bench.settled(member.adapter.retry([later(bench.receive(member, 1)[0], 0.05)]))
        second = bench.receive(member, 2)[1]
        bench.settled(member.adapter.dead_letter([DeadLetterRequest(second, {names.REASON: "rejected"})]))
        (letter,) = self._listed(member.adapter, subscription)
        assert letter.message.attempt == 2
        assert member.adapter.replay_dead_letters(subscription, [letter.id]) == 1
        again = bench.receive(member, 3)[2].message
        assert (again.body, again.keys, again.message_id) == (b"\x00x", ("key-1",), "id-1")
        assert again.attempt == 1
        assert again.headers["tenant"] == "a"
        assert names.REASON not in again.headers
        assert self._listed(member.adapter, subscription) == []

    def test_replay_reaches_its_group_alone(self, bench: Bench) -> None:
        """Replaying a letter of one group does not deliver it to another group of the topic."""
        bench.only_where("browse_dead_letters")
        topic = bench.topic()
        first, second = bench.subscription(topic, "one"), bench.subscription(topic, "two")
        member = bench.open(first, second)
        bench.publish(topic, b"x")
        # Unsettled, it would be redelivered where it is only leased.
        bench.settled(member.adapter.acknowledge(bench.receive(member, 1, "two")))
        bench.settled(member.adapter.dead_letter([DeadLetterRequest(bench.receive(member, 1, "one")[0], {})]))
        (letter,) = self._listed(member.adapter, first)
        member.adapter.replay_dead_letters(first, [letter.id])
        bench.receive(member, 2, "one")
        bench.nothing_more(member, 1, "two")

    def test_replay_takes_only_what_was_named(self, bench: Bench) -> None:
        """Letters that were not named stay; unknown ids are ignored."""
        bench.only_where("browse_dead_letters")
        subscription = bench.subscription(bench.topic())
        member = self._bury(bench, subscription, *numbered(5))
        letters = self._listed(member.adapter, subscription)
        named = [letters[1].id, letters[3].id, "no-such-id"]
        assert member.adapter.replay_dead_letters(subscription, named) == 2
        assert sorted(bodies(bench.receive(member, 7)[5:])) == [numbered(5)[1], numbered(5)[3]]
        left = [letter.message.body for letter in self._listed(member.adapter, subscription)]
        assert sorted(left) == [numbered(5)[0], numbered(5)[2], numbered(5)[4]]

    def test_purge_removes_for_ever(self, bench: Bench) -> None:
        """Purged letters are gone and are not delivered; the others stay."""
        bench.only_where("browse_dead_letters")
        subscription = bench.subscription(bench.topic())
        member = self._bury(bench, subscription, *numbered(3))
        letters = self._listed(member.adapter, subscription)
        purged = member.adapter.purge_dead_letters(subscription, [letters[0].id, letters[2].id])
        assert purged == 2
        assert [letter.message.body for letter in self._listed(member.adapter, subscription)] == numbered(3)[
            1:2
        ]
        bench.nothing_more(member, 3)

    def test_administration_needs_no_consumer(self, bench: Bench) -> None:
        """An adapter that is only prepared can list and replay."""
        bench.only_where("browse_dead_letters")
        subscription = bench.subscription(bench.topic())
        member = self._bury(bench, subscription, b"x")
        desk = bench.prepare(subscription)
        (letter,) = self._listed(desk, subscription)
        assert desk.replay_dead_letters(subscription, [letter.id]) == 1
        assert bench.receive(member, 2)[1].message.body == b"x"

    def test_burying_what_was_kept_elsewhere(self, bench: Bench) -> None:
        """A message that is no longer a delivery becomes a dead letter that keeps everything, and is not delivered."""
        subscription = bench.subscription(bench.topic())
        member = bench.open(subscription)
        published = datetime(2024, 5, 6, 7, 8, 9, tzinfo=UTC)
        headers = {"tenant": "a", names.CONTENT_TYPE: "text/plain", names.ATTEMPT: "2"}
        kept = Message(
            subscription.topic, b"\x00\xffnot json", "id-1", headers, ("key-1",), 2, published_at=published
        )
        cause = {names.REASON: "gap", names.ATTEMPT: "3"}
        answers = member.adapter.publish_dead_letters(
            subscription, [ParkedDeadLetter(kept, cause), ParkedDeadLetter(kept, cause)]
        )
        assert [type(answer) for answer in answers] == [Confirmed, Confirmed]
        bench.nothing_more(member, 0)
        if not bench.harness.capabilities.browse_dead_letters:
            return
        letters = self._listed(member.adapter, subscription)
        message = letters[0].message
        assert (message.body, message.keys, message.message_id) == (kept.body, ("key-1",), "id-1")
        assert (message.headers["tenant"], message.headers[names.CONTENT_TYPE]) == ("a", "text/plain")
        assert (message.headers[names.REASON], message.attempt) == ("gap", 3)
        assert message.published_at == published
        assert len({letter.id for letter in letters}) == 2

    def test_a_buried_message_is_replayed_like_others(self, bench: Bench) -> None:
        """Replay delivers it to its group with a fresh attempt."""
        bench.only_where("browse_dead_letters")
        subscription = bench.subscription(bench.topic())
        member = bench.open(subscription)
        kept = Message(subscription.topic, b"x", "id-1", {"tenant": "a"}, ("key-1",), 2)
        member.adapter.publish_dead_letters(subscription, [ParkedDeadLetter(kept, {names.REASON: "gap"})])
        (letter,) = self._listed(member.adapter, subscription)
        assert member.adapter.replay_dead_letters(subscription, [letter.id]) == 1
        again = bench.receive(member, 1)[0].message
        assert (again.body, again.keys, again.attempt) == (b"x", ("key-1",), 1)
