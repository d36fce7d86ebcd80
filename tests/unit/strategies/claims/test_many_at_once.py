"""Claims of many messages in one transaction, and their outcomes in another: what each message is promised all the same."""

import json
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import Engine, select

from oncemq import Done, Envelope, NotDone, Publisher, Reject, Retry, Unknown
from oncemq.common.clock import SystemClock
from oncemq.contracts.checks import Effects
from oncemq.contracts.publisher import Publishers
from oncemq.ledger import schema
from oncemq.ledger.database.engine import make_engine
from oncemq.ledger.messages import outbox
from oncemq.ledger.records import claims
from oncemq.ledger.records.claims import Claims, State
from oncemq.testing.scopes import scope_for
from oncemq.testing.scripted import ScriptedAdapter
from oncemq_strategies.claims.ledger_claims import ClaimBook, Phase, Wanted
from oncemq_strategies.claims.stored_messages import Doubt, Finish
from oncemq_strategies.claims.two_phase import TwoPhase
from support.benches.direct_unit import both
from support.benches.two_phase import envelope
from support.engine import make_app, make_consumer, make_topic, running

TOPICS = {"shipped": make_topic("shipped")}


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    """An app's database."""
    engine = make_engine(database_url)
    schema.create(engine)
    yield engine
    engine.dispose()


@pytest.fixture
def book(engine: Engine) -> ClaimBook:
    """The claims of one consumer."""
    return ClaimBook(engine, Claims("shop.points"), timedelta(minutes=1), SystemClock())


def verified(envelope: Envelope, publisher: Publisher) -> Unknown:
    """Know nothing."""
    return Unknown()


def strategy(engine: Engine, verify: Any = verified) -> TwoPhase:
    """Return a `two_phase` with this `verify`."""
    scope = replace(
        scope_for("shop.points", engine), import_object=lambda _: verify, publishers=Publishers(TOPICS)
    )
    return TwoPhase.build({} if verify is None else {"verify": "handlers:verify"}, scope)


def states(engine: Engine) -> dict[str, str]:
    """Return the state of each claim, by identity."""
    with engine.connect() as connection:
        found = connection.execute(select(claims.TABLE.c.identity, claims.TABLE.c.state))
        return {identity: str(state) for identity, state in found}


def order(number: int, **fields: Any) -> bytes:
    """Return a message of a key of its own."""
    return json.dumps({"id": f"o{number}", "key": f"k{number}", **fields}).encode()


def coroutine(handler: Any) -> Any:
    """Return the same as a coroutine function."""

    async def handle(body: dict, publisher: Publisher) -> None:
        handler(body, publisher)

    return handle


@both
def test_each_effect_finds_its_claim_committed(kind: str, engine: Engine) -> None:
    """Another connection sees it as soon as the handler begins, whatever is written together."""
    adapter, seen = ScriptedAdapter(), dict[str, str]()

    def handle(body: dict, publisher: Publisher) -> None:
        seen[body["id"]] = states(engine)[body["id"]]

    handler = coroutine(handle) if kind == "async" else handle
    consumer = make_consumer(handler, [strategy(engine)], effects=Effects.EXTERNAL, workers=4, topics=TOPICS)
    with running(make_app(adapter, engine, consumer, topics=TOPICS)):
        for number in range(40):
            adapter.deliver(order(number))
        adapter.wait_until(lambda a: len(a.acknowledged) == 40)
    assert seen == {f"o{number}": State.PROCESSING for number in range(40)}
    assert states(engine) == {f"o{number}": State.DONE for number in range(40)}


@both
def test_a_failed_neighbour_is_not_done(kind: str, engine: Engine) -> None:
    """An error leaves its claim unknown, Retry and Reject leave none; all others are done."""
    adapter = ScriptedAdapter()
    errors: dict[str, Exception] = {"o3": OSError("cut off"), "o7": Retry("busy"), "o9": Reject("no")}

    def handle(body: dict, publisher: Publisher) -> None:
        if body["id"] in errors:
            raise errors[body["id"]]

    handler = coroutine(handle) if kind == "async" else handle
    consumer = make_consumer(handler, [strategy(engine)], effects=Effects.EXTERNAL, workers=2, topics=TOPICS)
    with running(make_app(adapter, engine, consumer, topics=TOPICS)):
        for number in range(20):
            adapter.deliver(order(number))
        adapter.wait_until(lambda a: len(a.acknowledged) == 17 and len(a.retried) == 2 and len(a.dead) == 1)
    done = {f"o{number}": State.DONE for number in range(20) if f"o{number}" not in errors}
    assert states(engine) == {**done, "o3": State.UNKNOWN}


SPELLINGS = ["k", "K", "k ", "\uff4b", "\u00e9", "e\u0301", "\u00df", "ss", "0", "00"]


@both
def test_each_spelling_has_one_effect_in_each_consumer_beside_copies_and_another_process(
    kind: str, engine: Engine
) -> None:
    """One handler fails after its effect, and one before; `verify` tells them apart, and no neighbour notices."""
    effects, failed, mutex = list[tuple[str, str]](), set[tuple[str, str]](), threading.Lock()
    adapters = [ScriptedAdapter(), ScriptedAdapter()]

    def handler_of(name: str) -> Any:
        def handle(body: dict, publisher: Publisher) -> None:
            ours = (name, body["id"])
            with mutex:
                first = ours not in failed
                failed.add(ours)
                if not (first and body["id"] == "ss"):
                    effects.append(ours)
            if first and body["id"] in {"ss", "K"}:
                raise OSError("cut off")

        return coroutine(handle) if kind == "async" else handle

    def consumer(name: str) -> Any:
        def verify(envelope: Envelope, publisher: Publisher) -> Done | NotDone:
            return Done() if (name, envelope.identity) in effects else NotDone()

        scope = replace(
            scope_for(f"shop.{name}", engine), import_object=lambda _: verify, publishers=Publishers(TOPICS)
        )
        chain = [TwoPhase.build({"verify": "handlers:verify"}, scope)]
        return make_consumer(
            handler_of(name), chain, name=name, effects=Effects.EXTERNAL, workers=4, topics=TOPICS
        )

    with ExitStack() as processes:
        for adapter in adapters:
            pair = [consumer("points"), consumer("mail")]
            processes.enter_context(running(make_app(adapter, engine, *pair, topics=TOPICS)))
        for number in range(3):
            for adapter in adapters:
                for spelling in SPELLINGS:
                    for name in ("points", "mail"):
                        body = {"id": spelling, "key": f"k{number}"}
                        adapter.deliver(json.dumps(body).encode(), consumer=name)
        for adapter in adapters:
            adapter.wait_until(lambda a: len(a.acknowledged) + len(a.retried) == 60, 30)
    assert sorted(effects) == sorted((name, each) for name in ("points", "mail") for each in SPELLINGS)


@both
def test_what_many_publish_is_stored_with_the_end_of_each(
    kind: str, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A failure while they are stored together repeats no handler, and sends each message once."""
    adapter, ran, failures = ScriptedAdapter(), list[str](), [OSError("no space"), OSError("no space")]
    add = outbox.add

    def failing(*given: Any) -> Any:
        stored = add(*given)
        if failures:
            raise failures.pop()
        return stored

    def handle(body: dict, publisher: Publisher) -> None:
        ran.append(body["id"])
        publisher.publish("shipped", body)

    monkeypatch.setattr(outbox, "add", failing)
    handler = coroutine(handle) if kind == "async" else handle
    consumer = make_consumer(handler, [strategy(engine)], effects=Effects.EXTERNAL, workers=5, topics=TOPICS)
    with running(make_app(adapter, engine, consumer, topics=TOPICS)):
        for number in range(10):
            adapter.deliver(order(number))
        adapter.wait_until(lambda a: len(a.acknowledged) == 10)
        adapter.wait_until(lambda a: len(a.published) == 10)
    everything = sorted(f"o{number}" for number in range(10))
    assert sorted(ran) == everything
    assert sorted(json.loads(sent.message.body)["id"] for sent in adapter.published) == everything


def test_the_end_of_a_claim_that_another_has_taken_over_ends_nothing(book: ClaimBook) -> None:
    """Though the new owner's own claims end in the same statement."""
    book.take([envelope("a"), envelope("b")], "new")
    book.take([envelope("c")], "late")
    ends = [Finish("a", "late", '"stolen"'), Finish("b", "new", '"mine"'), Finish("c", "late")]
    assert list(book.finish_all(ends)) == [False, True, True]
    found = [book.find(identity) for identity in "abc"]
    assert [claim and (claim.state, claim.result) for claim in found] == [
        (State.PROCESSING, None),
        (State.DONE, '"mine"'),
        (State.DONE, None),
    ]


def test_several_owners_claim_at_once(book: ClaimBook) -> None:
    """Each gets its own; of one identity the first gets it."""
    mine, yours = book.take_all(
        [
            Wanted("me", {"a": envelope("a"), "b": envelope("b")}),
            Wanted("you", {"b": envelope("b"), "c": envelope("c")}),
        ]
    )
    assert {identity: held.phase for identity, held in mine.items()} == {"a": Phase.OURS, "b": Phase.OURS}
    assert {identity: held.phase for identity, held in yours.items()} == {"b": Phase.FOREIGN, "c": Phase.OURS}


def test_doubts_and_dropped_claims_compare_their_owners(book: ClaimBook) -> None:
    """Those of others stay as they are."""
    book.take([envelope("a"), envelope("b")], "me")
    book.take([envelope("c")], "you")
    book.doubt_all([Doubt("a", "me", "cut off", "print"), Doubt("c", "me", "stolen")])
    book.drop_all([("b", "me"), ("c", "me")])
    found = [book.find(identity) for identity in "abc"]
    assert [claim and (claim.state, claim.reason, claim.fingerprint) for claim in found] == [
        (State.UNKNOWN, "cut off", "print"),
        None,
        (State.PROCESSING, None, None),
    ]


def test_without_an_answer_each_effect_ends_by_itself(engine: Engine) -> None:
    """Without `verify` a death would make a dead letter of each that has not ended: no one waits for others."""
    assert strategy(engine).ends_together
    assert strategy(engine, lambda _: Done()).ends_together
    assert not strategy(engine, None).ends_together
