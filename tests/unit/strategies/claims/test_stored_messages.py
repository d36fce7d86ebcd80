"""What handlers with claims publish: stored with the claim's end, so that no death loses it."""

import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, select, update

from oncemq import Done, Envelope, NotDone, Publisher, Unknown
from oncemq.contracts.checks import Effects
from oncemq.contracts.publisher import Publishers
from oncemq.ledger import schema
from oncemq.ledger.database.engine import make_engine
from oncemq.ledger.messages import outbox
from oncemq.ledger.records import claims
from oncemq.ledger.records.claims import Claims, End, NewClaim, State
from oncemq.testing.scopes import scope_for
from oncemq.testing.scripted import ScriptedAdapter
from oncemq_strategies.claims.redis_flag import RedisFlag
from oncemq_strategies.claims.two_phase import TwoPhase
from support.engine import make_app, make_consumer, make_topic, running
from support.facts import facts_of

TOPICS = {"shipped": make_topic("shipped")}
BODY = json.dumps({"id": "o1", "key": "k"}).encode()


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    """An app's database."""
    engine = make_engine(f"sqlite:///{tmp_path}/ledger.db")
    schema.create(engine)
    yield engine
    engine.dispose()


def strategy(engine: Engine, verify: Any = None) -> TwoPhase:
    """Return a `two_phase` with this `verify`."""
    scope = replace(
        scope_for("shop.points", engine), import_object=lambda _: verify, publishers=Publishers(TOPICS)
    )
    return TwoPhase.build({} if verify is None else {"verify": "handlers:verify", "lease": "1s"}, scope)


def waiting(engine: Engine) -> list[str]:
    """Return the bodies in the outbox."""
    with engine.connect() as connection:
        return [bytes(body).decode() for body in connection.execute(select(outbox.TABLE.c.body)).scalars()]


def states(engine: Engine) -> list[str]:
    """Return the states of all claims."""
    with engine.connect() as connection:
        return list(connection.execute(select(claims.TABLE.c.state)).scalars())


def ship(body: dict[str, Any], publisher: Publisher) -> None:
    """Publish one message."""
    publisher.publish("shipped", body)


async def ship_async(body: dict[str, Any], publisher: Publisher) -> None:
    """The same in an event loop."""
    publisher.publish("shipped", body)


@pytest.mark.parametrize("handler", [ship, ship_async])
def test_messages_are_stored_before_they_are_sent_and_with_the_claims_end(
    engine: Engine, handler: Any
) -> None:
    """When the broker is asked for the first time, the claim is done and the message is in the outbox."""
    adapter = ScriptedAdapter()
    seen: list[tuple[list[str], int]] = []
    publish = adapter.publish
    vars(adapter)["publish"] = lambda *given: (
        seen.append((states(engine), len(waiting(engine)))) or publish(*given)
    )
    consumer = make_consumer(handler, [strategy(engine)], effects=Effects.EXTERNAL, topics=TOPICS)
    with running(make_app(adapter, engine, consumer, topics=TOPICS)):
        adapter.deliver(BODY)
        adapter.wait_until(lambda a: len(a.published) == 1)
        adapter.wait_until(lambda a: len(a.acknowledged) == 1)
    assert seen == [([State.DONE], 1)]


def test_an_end_that_fails_with_its_messages_is_done_again_with_them_once(engine: Engine) -> None:
    """The claim is not done while its messages cannot be stored, and they are stored once in the end."""
    adapter, kept = ScriptedAdapter(), list[int]()
    chain = strategy(engine)
    consumer = make_consumer(ship, [chain], effects=Effects.EXTERNAL, topics=TOPICS)
    add, failures = outbox.add, [OSError("no space"), OSError("no space")]

    def failing(*given: Any) -> Any:
        kept.append(1)
        stored = add(*given)
        if failures:
            raise failures.pop()
        return stored

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(outbox, "add", failing)
        with running(make_app(adapter, engine, consumer, topics=TOPICS)):
            adapter.deliver(BODY)
            adapter.wait_until(lambda a: len(a.acknowledged) == 1)
            adapter.wait_until(lambda a: len(a.published) == 1)
    assert (len(kept), len(adapter.published)) == (3, 1)


def doubtful(engine: Engine) -> None:
    """Leave a claim whose process died."""
    with engine.begin() as connection:
        until = scope_for("shop.points").clock.now() - timedelta(minutes=1)
        Claims("shop.points").take(connection, [NewClaim("o1", "k", "dead", "")], until)


def done(envelope: Envelope, publisher: Publisher) -> Done:
    """Publish what the handler would have, and say that the effect is there."""
    publisher.publish("shipped", {"id": envelope.identity, "key": envelope.key})
    return Done()


def not_done(envelope: Envelope, publisher: Publisher) -> NotDone:
    """Publish, and say then that nothing happened."""
    publisher.publish("shipped", {"id": "nothing", "key": envelope.key})
    return NotDone()


@pytest.mark.parametrize("verify", [done, not_done])
def test_what_a_dead_process_did_not_publish_is_sent_once(engine: Engine, verify: Any) -> None:
    """`verify` publishes with Done; with NotDone the handler does, and what `verify` published is dropped."""
    adapter = ScriptedAdapter()
    consumer = make_consumer(ship, [strategy(engine, verify)], effects=Effects.EXTERNAL, topics=TOPICS)
    plan = make_app(adapter, engine, consumer, topics=TOPICS)
    doubtful(engine)
    with running(plan):
        adapter.deliver(BODY)
        adapter.wait_until(lambda a: len(a.acknowledged) == 1)
        adapter.wait_until(lambda a: len(a.published) == 1)
    assert [json.loads(sent.message.body)["id"] for sent in adapter.published] == ["o1"]
    assert states(engine) == [State.DONE]


def test_the_background_stores_what_verify_publishes(engine: Engine) -> None:
    """A stuck claim that proves done has its messages in the outbox, due for any process."""
    doubtful(engine)
    with engine.begin() as connection:
        from_text = (
            '{"broker": "main", "topic": "orders", "group": "points", "key": "k", "version": null, '
            '"identity": "o1", "message_id": "m", "attempt": 1, "headers": {}, "body": "", "published_at": null}'
        )
        connection.execute(update(claims.TABLE).values(envelope=from_text))
    with suppress(StopIteration):
        list(strategy(engine, done).reconcile(engine))
    assert states(engine) == [State.DONE]
    assert [json.loads(body)["id"] for body in waiting(engine)] == ["o1"]


def test_an_end_that_was_noted_before_stores_nothing_again(engine: Engine) -> None:
    """When the answer to a commit was lost, the second try finds the claim done and its messages stored."""
    mine, stored = Claims("shop.points"), list[str]()
    now = scope_for("shop.points").clock.now()
    end = End("o1", "me", also=lambda _: stored.append("o1"))
    with engine.begin() as connection:
        mine.take(connection, [NewClaim("o1", "k", "me", "")], now + timedelta(minutes=1))
    for _ in range(2):
        with engine.begin() as connection:
            assert mine.finish(connection, [end], now) == [True]
    with engine.begin() as connection:
        assert mine.finish(connection, [End("o1", "other", also=end.also)], now) == [False]
    assert stored == ["o1"]


def silent(_envelope: Envelope) -> Unknown:
    """Know nothing, and publish nothing."""
    return Unknown()


def test_a_verify_that_does_not_publish_is_refused_beside_a_handler_that_does(engine: Engine) -> None:
    """Its Done would lose the handler's messages; without a Publisher in the handler there is nothing to lose."""
    facts = facts_of("orders", "points", effects=Effects.EXTERNAL, dialect="sqlite")
    chain = strategy(engine, silent)
    assert list(chain.check(facts)) == []
    (problem,) = chain.check(replace(facts, publishes=True))
    assert "never sent" in problem.text
    assert "publisher: Publisher" in problem.advice
    assert list(strategy(engine, done).check(replace(facts, publishes=True))) == []


def test_redis_flag_without_a_database_refuses_a_handler_that_publishes(engine: Engine) -> None:
    """There is no place for the messages before the flag says success."""
    facts = facts_of("orders", "points", effects=Effects.EXTERNAL, dialect="", publishes=True)

    def texts(engine: Engine | None, dialect: str) -> str:
        chain = RedisFlag.build({"in_doubt": "run"}, scope_for("shop.points", engine))
        return "\n".join(problem.text for problem in chain.check(replace(facts, dialect=dialect)))

    assert "asks for a Publisher" in texts(None, "")
    assert "Publisher" not in texts(engine, "sqlite")
