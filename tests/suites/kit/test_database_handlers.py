"""Outcomes of handlers whose effects are in the app's database."""

from datetime import timedelta
from typing import Any

import pytest
from pydantic import BaseModel
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Session

from oncemq import Batch, Envelope, Publisher, Reject, Retry
from oncemq.app_options import RetryRuleOptions
from oncemq.testing import Status, TestApp
from suites.kit.conftest import Bench, Effect, effects


class Order(BaseModel):
    """A typed message."""

    id: str
    key: str


def _one(bench: Bench, handler: Any = None, **options: Any) -> tuple[TestApp, str]:
    topic = bench.topic(**options)
    bench.consume(topic, handler or bench.apply, name="apply")
    return bench.start(), topic


def test_an_applied_message_has_its_effect_and_its_result(bench: Bench) -> None:
    """The outcome is known when publish returns."""
    app, topic = _one(bench)
    outcome = app.publish(topic, {"id": "a", "key": "k"})
    assert (outcome.applied, outcome.result, outcome.attempt) == (True, "did a", 1)
    assert effects(app) == ["a"]


def test_a_duplicate_has_no_second_effect(bench: Bench) -> None:
    """A producer that sends twice causes one effect."""
    app, topic = _one(bench)
    outcome = app.publish(topic, {"id": "a", "key": "k"})
    again = app.duplicate(outcome)
    assert (outcome.applied, again.duplicate, again.result) == (True, True, None)
    assert effects(app) == ["a"]


def test_a_redelivered_message_is_a_duplicate(bench: Bench) -> None:
    """A lost acknowledgement causes no second effect."""
    app, topic = _one(bench)
    assert app.redeliver(app.publish(topic, {"id": "a", "key": "k"})).duplicate
    assert effects(app) == ["a"]


def test_another_message_of_the_key_is_applied(bench: Bench) -> None:
    """Identity decides, not the key."""
    app, topic = _one(bench)
    assert [app.publish(topic, {"id": name, "key": "k"}).status for name in "ab"] == [Status.APPLIED] * 2


def test_a_failed_message_leaves_nothing_and_is_retried(bench: Bench) -> None:
    """The outcome tells error and pause."""
    app, topic = _one(bench)
    bench.failures = [ValueError("no")]
    outcome = app.publish(topic, {"id": "a", "key": "k"})
    assert outcome.history()[0].status is Status.RETRIED
    assert outcome.history()[0].next_in == timedelta(milliseconds=50)
    assert isinstance(outcome.history()[0].error, ValueError)


def test_a_retry_is_applied_when_its_pause_is_over(bench: Bench) -> None:
    """Advancing the clock lets the retry run, and the outcome follows."""
    app, topic = _one(bench)
    bench.failures = [ValueError("no"), ValueError("still no")]
    outcome = app.publish(topic, {"id": "a", "key": "k"})
    app.clock.advance("1s")
    assert (outcome.applied, outcome.attempt) == (True, 3)
    assert [handling.status.value for handling in outcome.history()] == ["retried", "retried", "applied"]
    assert effects(app) == ["a"]


def test_the_last_attempt_ends_as_a_dead_letter(bench: Bench) -> None:
    """The retry policy's number of attempts holds."""
    app, topic = _one(bench)
    bench.failures = [ValueError(str(number)) for number in range(3)]
    outcome = app.publish(topic, {"id": "a", "key": "k"})
    app.clock.advance("1s")
    assert (outcome.dead_letter, outcome.code, outcome.attempt) == (True, "attempts-exhausted", 3)
    assert effects(app) == []


def test_an_error_that_is_never_retried_is_a_dead_letter_at_once(bench: Bench) -> None:
    """A subclass counts, and the dead letter has the error itself."""
    topic = bench.topic()
    bench.consume(topic, bench.apply, name="apply", retry={"never": [LookupError]})
    app = bench.start()
    bench.failures = [KeyError("currency")]
    outcome = app.publish(topic, {"id": "a", "key": "k"})
    assert (outcome.dead_letter, outcome.code, outcome.attempt) == (True, "not-retried", 1)
    assert outcome.reason == "KeyError: 'currency'"


def test_an_error_has_its_own_attempts_and_pauses(bench: Bench) -> None:
    """What is declared for its class replaces what holds for all others."""
    topic = bench.topic()
    rule: RetryRuleOptions = {"attempts": 4, "backoff": {"first": "20ms", "max": "20ms"}}
    bench.consume(topic, bench.apply, name="apply", retry={"errors": {TimeoutError: rule}})
    app = bench.start()
    bench.failures = [TimeoutError() for _ in range(3)]
    outcome = app.publish(topic, {"id": "a", "key": "k"})
    assert outcome.history()[0].next_in == timedelta(milliseconds=20)
    app.clock.advance("1s")
    assert (outcome.applied, outcome.attempt) == (True, 4)


def test_immediate_tries_cost_no_attempt_and_no_neighbour(bench: Bench) -> None:
    """The failed message is tried again at once in a transaction of its own, and later ones of its key wait for it."""
    topic = bench.topic()
    bench.consume(topic, bench.apply, name="apply", retry={"immediate": 2})
    app = bench.start()
    bench.failures = [ValueError("no"), ValueError("still no")]
    outcomes = app.publish_many(topic, [{"id": name, "key": "k"} for name in "abc"])
    assert [(outcome.applied, outcome.attempt) for outcome in outcomes] == [(True, 1)] * 3
    assert effects(app) == ["a", "b", "c"]


def test_a_failure_after_its_immediate_tries_counts_once(bench: Bench) -> None:
    """Then it is retried as usual, with immediate tries of its own."""
    topic = bench.topic()
    bench.consume(topic, bench.apply, name="apply", retry={"immediate": 1})
    app = bench.start()
    bench.failures = [ValueError(str(number)) for number in range(6)]
    outcome = app.publish(topic, {"id": "a", "key": "k"})
    app.clock.advance("1s")
    assert (outcome.dead_letter, outcome.attempt, bench.failures) == (True, 3, [])


def test_reject_is_a_dead_letter_at_once(bench: Bench) -> None:
    """`raise Reject` ends a message without another attempt."""
    app, topic = _one(bench)
    bench.failures = [Reject("wrong currency")]
    outcome = app.publish(topic, {"id": "a", "key": "k"})
    assert (outcome.dead_letter, outcome.code, outcome.reason) == (True, "rejected", "wrong currency")


def test_retry_after_is_the_pause(bench: Bench) -> None:
    """`raise Retry(after=…)` decides about the pause."""
    app, topic = _one(bench)
    bench.failures = [Retry("later", after=timedelta(milliseconds=200))]
    outcome = app.publish(topic, {"id": "a", "key": "k"})
    assert outcome.history()[0].next_in == timedelta(milliseconds=200)
    app.clock.advance("400ms")
    assert outcome.applied


def test_what_cannot_be_decoded_is_a_dead_letter(bench: Bench) -> None:
    """Bytes are published unchanged, also what our own publisher would refuse."""
    app, topic = _one(bench)
    outcome = app.publish(topic, b"{not json")
    assert (outcome.dead_letter, outcome.code) == (True, "undecodable")


def test_a_missing_key_is_a_dead_letter(bench: Bench) -> None:
    """A key is never invented."""
    app, topic = _one(bench)
    outcome = app.publish(topic, {"id": "a"})
    assert (outcome.dead_letter, outcome.code) == (True, "no-key")


def test_a_payload_of_another_shape_is_a_dead_letter(bench: Bench) -> None:
    """The handler's annotation is the schema."""

    def handle(order: Order, session: Session) -> None:
        session.add(Effect(text=order.id))

    app, topic = _one(bench, handle)
    outcome = app.publish(topic, {"id": 1.5, "key": "k"})
    assert outcome.dead_letter
    assert "id" in outcome.reason


def test_other_content_under_the_same_identity_is_a_dead_letter(bench: Bench) -> None:
    """A fingerprint tells a copy from a contradiction."""
    app, topic = _one(
        bench, strategies=[{"unique_key": {"fingerprint": ["body.amount"]}}], identity=["body.id"]
    )
    app.publish(topic, {"id": "a", "key": "k", "amount": 1})
    outcome = app.publish(topic, {"id": "a", "key": "k", "amount": 2})
    assert (outcome.dead_letter, outcome.code) == (True, "conflict")


def test_a_crash_after_the_commit_causes_one_effect(bench: Bench) -> None:
    """The broker delivers it again, and it is a duplicate."""
    app, topic = _one(bench)
    outcome = app.crash_after_commit(topic, {"id": "a", "key": "k"})
    assert [handling.status.value for handling in outcome.history()] == ["applied", "duplicate"]
    assert effects(app) == ["a"]
    assert app.publish(topic, {"id": "b", "key": "k"}).applied


def test_without_a_commit_there_is_no_crash(bench: Bench) -> None:
    """A test that means to show a crash after a commit fails if nothing was committed."""
    app, topic = _one(bench)
    bench.failures = [Reject("no")]
    with pytest.raises(AssertionError, match="nothing was committed"):
        app.crash_after_commit(topic, {"id": "a", "key": "k"})


def test_published_messages_are_seen_after_the_commit(bench: Bench) -> None:
    """The outbox sends them, with body and key."""
    bench.app.topic(f"points.{bench.name}", key="body.user")

    def handle(body: dict[str, Any], publisher: Publisher) -> None:
        publisher.publish(f"points.{bench.name}", {"user": body["id"], "points": 3})

    app, topic = _one(bench, handle)
    assert app.publish(topic, {"id": "ada", "key": "k"}).applied
    (sent,) = app.published(f"points.{bench.name}")
    assert (sent.body, sent.key) == ({"user": "ada", "points": 3}, "ada")


def test_a_failed_handler_publishes_nothing(bench: Bench) -> None:
    """What it published is rolled back with everything else."""
    bench.app.topic(f"points.{bench.name}", key="body.user")

    def handle(_: dict[str, Any], publisher: Publisher) -> None:
        publisher.publish(f"points.{bench.name}", {"user": "ada"})
        raise Reject("no")

    app, topic = _one(bench, handle)
    assert app.publish(topic, {"id": "a", "key": "k"}).dead_letter
    assert app.published() == []


def test_a_published_message_is_consumed_too(bench: Bench) -> None:
    """A chain of consumers has run when publish returns; each message has its outcome."""
    second = bench.topic("second")
    bench.consume(second, bench.apply, name="second")

    def handle(body: dict[str, Any], publisher: Publisher) -> None:
        publisher.publish(second, body)

    app, topic = _one(bench, handle)
    assert app.publish(topic, {"id": "a", "key": "k"}).applied
    assert [sent.outcome.applied for sent in app.published(second)] == [True]
    assert effects(app) == ["a"]


def test_each_consumer_has_its_own_outcome(bench: Bench) -> None:
    """Every group gets every message."""
    topic = bench.topic()
    bench.consume(topic, bench.apply, name="one")

    def refuse(_: dict[str, Any]) -> None:
        raise Reject("not mine")

    bench.consume(topic, refuse, name="two", effects="database")
    outcome = bench.start().publish(topic, {"id": "a", "key": "k"})
    assert (outcome.of("one").status, outcome.of("two").status) == (Status.APPLIED, Status.DEAD_LETTER)
    assert not outcome.applied
    with pytest.raises(LookupError, match="2 consumers"):
        _ = outcome.reason


def test_a_batch_handler_applies_what_arrives_together(bench: Bench) -> None:
    """Every message has its outcome, and a duplicate inside is one."""

    def handle(orders: Batch[Order], session: Session) -> None:
        session.add_all([Effect(text=order.id) for order in orders])

    app, topic = _one(bench, handle)
    outcomes = app.publish_many(topic, [{"id": name, "key": name} for name in "abca"])
    assert [outcome.status.value for outcome in outcomes] == ["applied", "applied", "applied", "duplicate"]
    assert sorted(effects(app)) == ["a", "b", "c"]


@pytest.mark.parametrize("batch", [False, True], ids=["one", "batch"])
def test_an_async_handler_in_the_transaction_has_its_effect_and_its_result(
    bench: Bench, *, batch: bool
) -> None:
    """The outcome has what was awaited, and a failure after writing leaves nothing."""

    async def one(order: Order, session: AsyncSession) -> str:
        session.add(Effect(text=order.id))
        await session.flush()
        if bench.failures:
            raise bench.failures.pop()
        return f"did {order.id}"

    async def several(orders: Batch[Order], session: AsyncSession) -> str:
        return " ".join([await one(order, session) for order in orders])

    app, topic = _one(bench, several if batch else one)
    bench.failures = [ValueError("no")]
    outcome = app.publish(topic, {"id": "a", "key": "k"})
    assert outcome.retried
    app.clock.advance("1s")
    assert (outcome.applied, outcome.result, effects(app)) == (True, "did a", ["a"])
    assert app.duplicate(outcome).duplicate


def test_a_bad_message_of_a_batch_harms_no_other(bench: Bench) -> None:
    """The others are applied."""

    def handle(orders: Batch[Order], session: Session) -> None:
        session.add_all([Effect(text=order.id) for order in orders])

    app, topic = _one(bench, handle)
    outcomes = app.publish_many(
        topic, [{"id": "a", "key": "a"}, {"id": [], "key": "b"}, {"id": "c", "key": "c"}]
    )
    assert [outcome.status.value for outcome in outcomes][::2] == ["applied", "applied"]
    assert outcomes[1].dead_letter


def test_headers_id_and_version_arrive(bench: Bench) -> None:
    """The handler's Envelope has what was published."""
    seen: list[Envelope] = []

    def handle(envelope: Envelope, session: Session) -> None:
        seen.append(envelope)
        session.add(Effect(text=envelope.key))

    app, topic = _one(bench, handle, key="body.key", version="headers.version", identity=["body.id"])
    app.publish(topic, {"id": "a", "key": "k"}, version=7, headers={"tenant": "north"}, message_id="m-1")
    (envelope,) = seen
    assert (envelope.version, envelope.headers["tenant"], envelope.message_id) == (7, "north", "m-1")


def test_a_handler_cannot_change_what_its_retry_sees(bench: Bench) -> None:
    """Its headers are read-only, so neither a copy nor the message itself carries what it wrote."""
    seen: list[tuple[str, bool]] = []

    def handle(envelope: Envelope, session: Session) -> None:
        headers: Any = envelope.headers
        before = headers["tenant"]
        try:
            headers["tenant"] = "south"
        except TypeError:
            seen.append((before, True))
        else:
            seen.append((before, False))
        if envelope.attempt == 1:
            raise Retry("again")
        session.add(Effect(text=envelope.key))

    app, topic = _one(bench, handle)
    outcome = app.publish(topic, {"id": "a", "key": "k"}, headers={"tenant": "north"})
    app.clock.advance("1s")
    assert (seen, effects(app)) == ([("north", True)] * 2, ["k"]), outcome


def test_a_dead_letter_tells_its_story(bench: Bench) -> None:
    """Consumer, key, reason, error, attempts and body are those of the command line."""
    app, topic = _one(bench)
    bench.failures = [Reject("wrong currency")]
    app.publish(topic, {"id": "a", "key": "k"})
    (letter,) = app.dead_letters()
    assert (letter.consumer, letter.key, letter.reason, letter.attempts) == ("apply", "k", "rejected", 1)
    assert letter.error is not None
    assert "wrong currency" in letter.error
    assert letter.body == b'{"id":"a","key":"k"}'


def test_a_text_is_published_in_its_format(bench: Bench) -> None:
    """A topic of format text takes a str."""

    def handle(text: str, session: Session) -> None:
        session.add(Effect(text=text))

    app, topic = _one(bench, handle, key="headers.key", identity=["headers.key"], format="text")
    assert app.publish(topic, "hello", headers={"key": "k"}).applied
    assert effects(app) == ["hello"]


def test_rows_can_be_prepared(bench: Bench) -> None:
    """A session of the test sees and makes what handlers see and make."""
    app, topic = _one(bench)
    with app.session() as session:
        session.add(Effect(text="before"))
        session.commit()
    app.publish(topic, {"id": "a", "key": "k"})
    assert effects(app) == ["before", "a"]


def test_an_open_session_of_the_test_blocks_nothing(bench: Bench) -> None:
    """A test may read and publish while it has read."""
    app, topic = _one(bench)
    with app.session() as session:
        session.query(Effect).all()
        assert app.publish(topic, {"id": "a", "key": "k"}).applied
