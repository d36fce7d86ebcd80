"""Middlewares around handlers, after commits and at publishing; those that break a handler's call fail by their name."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Session

from oncemq import (
    AppliedMessage,
    Batch,
    Envelope,
    HandlerCall,
    Publisher,
    Publishing,
    Reject,
    Retry,
)
from oncemq.testing import TestApp
from suites.kit.conftest import Bench, Effect, effects

Order = dict[str, Any]
Call = Callable[[], Any]
AsyncCall = Callable[[], Awaitable[Any]]

SEEN: list[str] = []
"""What the middlewares of these tests have seen."""


@pytest.fixture(autouse=True)
def _nothing_seen() -> None:
    SEEN.clear()


class Named:
    """Notes what it sees, under a name."""

    def __init__(self, name: str) -> None:
        self.name = name

    def around(self, call: Call, message: HandlerCall) -> Any:
        """Note before and after."""
        SEEN.append(f"{self.name} before {message.envelope.key}")
        result = call()
        SEEN.append(f"{self.name} after {result}")
        return result

    async def around_async(self, call: AsyncCall, message: HandlerCall) -> Any:
        """Note the same."""
        SEEN.append(f"{self.name} before {message.envelope.key}")
        result = await call()
        SEEN.append(f"{self.name} after {result}")
        return result


class Told:
    """Notes what was committed."""

    def after_commit(self, message: AppliedMessage) -> None:
        """Note consumer, key and result."""
        SEEN.append(f"{message.consumer} {message.envelope.identity} {message.result}")


class Audit:
    """Writes a row beside each effect."""

    def around(self, call: Call, message: HandlerCall) -> Any:
        """Write the row in the handler's transaction."""
        message.session.add(Effect(text=f"audit {message.envelope.key}"))
        return call()

    async def around_async(self, call: AsyncCall, message: HandlerCall) -> Any:
        """Write the same row by the AsyncSession."""
        message.async_session.add(Effect(text=f"audit {message.envelope.key}"))
        await message.async_session.flush()
        return await call()


class Wrong:
    """Does something wrong around a handler.

    Args:
        way: what.
    """

    def __init__(self, way: str) -> None:
        self.way = way

    def around(self, call: Call, message: HandlerCall) -> Any:
        """Do it, for the order `bad` only."""
        if message.envelope.identity != "bad":
            return call()
        if self.way == "swallows":
            try:
                return call()
            except ValueError:
                return None
        if self.way == "twice":
            call()
        if self.way == "again":
            try:
                call()
                call()
            except Exception:
                SEEN.append("hidden")
        return None if self.way == "no-call" else call() if self.way == "twice" else None

    async def around_async(self, call: AsyncCall, message: HandlerCall) -> Any:
        """Do the same in a coroutine."""
        if message.envelope.identity != "bad":
            return await call()
        if self.way == "swallows":
            try:
                return await call()
            except ValueError:
                return None
        if self.way == "twice":
            await call()
            return await call()
        if self.way == "again":
            try:
                await call()
                await call()
            except Exception:
                SEEN.append("hidden")
        return None


def _order(name: str = "a", key: str = "k") -> Order:
    return {"id": name, "key": key}


def _start(bench: Bench, handler: Any, *middlewares: Any, **options: Any) -> tuple[TestApp, str]:
    topic = bench.topic()
    bench.consume(topic, handler, name="apply", middlewares=list(middlewares), **options)
    return bench.start(), topic


def _is_async(handler: Callable[[Order, Session], Any]) -> Callable[[Order, AsyncSession], Awaitable[Any]]:
    async def apply(body: Order, session: AsyncSession) -> Any:
        return await session.run_sync(lambda inner: handler(body, inner))

    return apply


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
def test_they_run_in_the_order_written(bench: Bench, *, is_async: bool) -> None:
    """The first one is outermost; the app's are around the consumer's."""
    bench.renew(middlewares=[Named("app")])
    handler = _is_async(bench.apply) if is_async else bench.apply
    app, topic = _start(bench, handler, Named("one"), Named("two"))
    assert app.publish(topic, _order()).result == "did a"
    assert [
        *["app before k", "one before k", "two before k"],
        *["two after did a", "one after did a", "app after did a"],
    ] == SEEN


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
def test_what_one_writes_is_in_the_transaction(bench: Bench, *, is_async: bool) -> None:
    """It is committed and rolled back with the effect."""
    app, topic = _start(bench, _is_async(bench.apply) if is_async else bench.apply, Audit())
    bench.failures = [ValueError("not yet")]
    assert app.publish(topic, _order("a", "k1")).retried
    assert effects(app) == []
    app.clock.advance("1s")
    assert sorted(effects(app)) == ["a", "audit k1"]


def test_the_handlers_result_is_kept(bench: Bench) -> None:
    """Also where a middleware returns something else, or nothing."""

    class Forgets:
        def around(self, call: Call, _: HandlerCall) -> str:
            call()
            return "mine"

    app, topic = _start(bench, bench.apply, Forgets())
    assert app.publish(topic, _order()).result == "did a"


@pytest.mark.parametrize("late", [False, True], ids=["before", "after"])
def test_one_may_reject_or_retry(bench: Bench, *, late: bool) -> None:
    """Before the handler, or after it: then its work is undone."""

    class Decides:
        def around(self, call: Call, message: HandlerCall) -> Any:
            if late:
                call()
            if message.envelope.identity == "bad":
                raise Reject("unknown tenant")
            if message.envelope.identity == "later":
                raise Retry(after="1h")
            return None if late else call()

    app, topic = _start(bench, bench.apply, Decides())
    outcomes = app.publish_many(topic, [_order(name, name) for name in ("a", "bad", "b", "later")])
    assert [outcome.status.value for outcome in outcomes] == ["applied", "dead letter", "applied", "retried"]
    assert outcomes[1].reason == "unknown tenant"
    assert sorted(effects(app)) == ["a", "b"]


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize(
    ("way", "words"),
    [
        ("swallows", "swallowed ValueError: bad"),
        ("no-call", "did not call its handler"),
        ("twice", "called its handler twice"),
        ("again", "called its handler twice"),
    ],
    ids=["swallows", "no-call", "twice", "again"],
)
def test_one_that_breaks_the_call_fails_by_its_name(
    bench: Bench, way: str, words: str, *, is_async: bool
) -> None:
    """Its message is retried with that error, nothing of it stays, and its neighbours are applied."""

    def apply(body: Order, session: Session) -> None:
        session.add(Effect(text=body["id"]))
        if body["id"] == "bad" and way == "swallows":
            raise ValueError("bad")

    app, topic = _start(bench, _is_async(apply) if is_async else apply, Wrong(way))
    outcomes = app.publish_many(topic, [_order(name, name) for name in ("a", "bad", "b")])
    assert [outcome.status.value for outcome in outcomes] == ["applied", "retried", "applied"]
    assert "suites.kit.test_middlewares:Wrong" in outcomes[1].reason
    assert words in outcomes[1].reason
    assert sorted(effects(app)) == ["a", "b"]


def test_a_handler_that_is_not_awaited_is_not_called(bench: Bench) -> None:
    """A coroutine that a middleware forgets did nothing, and a task that it leaves behind is no call that has ended."""

    class Leaves:
        async def around_async(self, call: AsyncCall, message: HandlerCall) -> None:
            if message.envelope.identity == "bad":
                task = asyncio.ensure_future(call())
                await asyncio.sleep(0)
                task.cancel()
            else:
                await call()

    async def act(body: Order) -> None:
        await asyncio.Event().wait() if body["id"] == "bad" else None

    topic = bench.topic(identity=["body.id"], strategies=["none"])
    bench.consume(topic, act, name="apply", effects="external", middlewares=[Leaves()])
    app = bench.start()
    assert app.publish(topic, _order("a")).applied
    outcome = app.publish(topic, _order("bad"))
    assert outcome.retried
    assert "returned before its handler" in outcome.reason


def test_committed_messages_are_told(bench: Bench) -> None:
    """Once each, after the commit, with their results; neither what failed nor a duplicate is told."""
    app, topic = _start(bench, bench.apply, Told())
    bench.failures = [Reject("no")]
    outcomes = app.publish_many(topic, [_order(name, name) for name in ("bad", "a", "b", "a")])
    assert [outcome.status.value for outcome in outcomes] == [
        "dead letter",
        "applied",
        "applied",
        "duplicate",
    ]
    assert sorted(SEEN) == ["apply a did a", "apply b did b"]


def test_what_runs_again_for_a_neighbour_is_told_once(bench: Bench) -> None:
    """Only the commit that holds counts, not the tries before it."""
    tries: list[str] = []

    def apply(body: Order, session: Session) -> str:
        tries.append(body["id"])
        session.add(Effect(text=body["id"]))
        session.flush()
        if body["id"] == "bad":
            raise ValueError("bad")
        return f"did {body['id']}"

    app, topic = _start(bench, apply, Told())
    outcomes = app.publish_many(topic, [_order(name, name) for name in ("a", "b", "bad", "c")])
    assert [outcome.status.value for outcome in outcomes] == ["applied", "applied", "retried", "applied"]
    assert sorted(SEEN) == ["apply a did a", "apply b did b", "apply c did c"]


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
def test_external_effects_are_told(bench: Bench, *, is_async: bool) -> None:
    """When the message is finished; the middleware around them has no session."""
    found: list[str] = []

    class Looks(Told):
        def around(self, call: Call, message: HandlerCall) -> Any:
            found.append(_session_of(message))
            return call()

        async def around_async(self, call: AsyncCall, message: HandlerCall) -> Any:
            found.append(_session_of(message))
            return await call()

    async def act(body: Order) -> str:
        return bench.act(body)

    topic = bench.topic(identity=["body.id"], strategies=["none"])
    handler = act if is_async else bench.act
    bench.consume(topic, handler, name="apply", effects="external", middlewares=[Looks()])
    app = bench.start()
    assert app.publish(topic, _order()).applied
    assert bench.effects == ["a"]
    assert SEEN == ["apply a did a"]
    assert found == ["effects of apply are external, so its middlewares have no session"]


def _session_of(message: HandlerCall) -> str:
    try:
        return repr(message.session)
    except LookupError as error:
        return str(error)


def test_a_failing_hook_after_the_commit_changes_nothing(bench: Bench) -> None:
    """The message stays applied, and other messages and middlewares are told."""

    class Fails:
        def after_commit(self, message: AppliedMessage) -> None:
            raise ValueError(f"no {message.envelope.key}")

    app, topic = _start(bench, bench.apply, Fails(), Told())
    outcomes = app.publish_many(topic, [_order("a", "a"), _order("b", "b")])
    assert [outcome.applied for outcome in outcomes] == [True, True]
    assert sorted(SEEN) == ["apply a did a", "apply b did b"]


def test_a_batch_is_one_call(bench: Bench) -> None:
    """A middleware sees all its envelopes; each message is told after the commit."""
    batches: list[int] = []

    class Counts(Told):
        def around(self, call: Call, message: HandlerCall) -> Any:
            batches.append(len(message.envelopes))
            return call()

    def apply(batch: Batch[Order], session: Session) -> None:
        session.add_all([Effect(text=order["id"]) for order in batch])

    app, topic = _start(bench, apply, Counts())
    app.publish_many(topic, [_order(name, name) for name in "abc"])
    assert sum(batches) == 3
    assert sorted(SEEN) == ["apply a None", "apply b None", "apply c None"]
    assert sorted(effects(app)) == ["a", "b", "c"]


def test_published_messages_get_headers(bench: Bench) -> None:
    """Those of the app see every publication, those of a consumer its own."""

    class Stamps:
        def __init__(self, name: str) -> None:
            self.name = name

        def on_publish(self, message: Publishing) -> None:
            message.headers[self.name] = f"{message.topic.partition('.')[0]} {message.body['id']}"

    bench.renew(middlewares=[Stamps("of-app")])
    orders, shipped = bench.topic(), bench.topic("shipped")
    headers: list[dict[str, str]] = []

    def apply(body: Order, _: Session, publisher: Publisher) -> None:
        publisher.publish(shipped, {**body, "id": "s"})

    def read(_: Order, envelope: Envelope, __: Session) -> None:
        headers.append({name: envelope.headers[name] for name in envelope.headers if name.startswith("of-")})

    bench.consume(orders, apply, name="apply", middlewares=[Stamps("of-consumer")])
    bench.consume(shipped, read, name="read")
    app = bench.start()
    app.publish(orders, _order())
    app.clock.advance("1s")
    assert headers == [{"of-app": "shipped s", "of-consumer": "shipped s"}]


def test_one_may_refuse_a_publication(bench: Bench) -> None:
    """Its error is raised where the handler publishes."""

    class Refuses:
        def on_publish(self, message: Publishing) -> None:
            raise Reject(f"{message.headers['tenant']} may not publish {message.key}")

    def apply(body: Order, _: Session, publisher: Publisher) -> None:
        publisher.publish(topic, body, headers={"tenant": "acme"})

    topic = bench.topic()
    bench.consume(topic, apply, name="apply", middlewares=[Refuses()])
    outcome = bench.start().publish(topic, _order())
    assert (outcome.dead_letter, outcome.reason) == (True, "acme may not publish None")


def test_what_is_told_is_committed(bench: Bench) -> None:
    """The hook finds the effect in the database, by a connection of its own."""
    found: list[list[str]] = []

    class Looks:
        def after_commit(self, _: AppliedMessage) -> None:
            found.append(effects(app))

    app, topic = _start(bench, bench.apply, Looks())
    assert app.publish(topic, _order()).applied
    assert found == [["a"]]


def test_a_call_that_is_over_lends_no_session(bench: Bench) -> None:
    """A middleware that keeps it cannot write into another message's transaction."""
    kept: list[HandlerCall] = []

    class Keeps:
        def around(self, call: Call, message: HandlerCall) -> Any:
            kept.append(message)
            return call()

    app, topic = _start(bench, bench.apply, Keeps())
    assert app.publish(topic, _order()).applied
    with pytest.raises(LookupError, match="the call of apply is over"):
        _ = kept[0].session
