"""Outcomes of messages that are too old: `expires:` of a consumer."""

from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Session

from oncemq import Batch, NewMessage
from oncemq.testing import Status, TestApp
from suites.kit.conftest import Bench, Effect, Ride, effects

PAST, FUTURE = "2001-01-01T00:00:00Z", "2999-01-01T00:00:00+08:00"


def _start(bench: Bench, handler: Any = None, *strategies: Any, **options: Any) -> tuple[TestApp, str]:
    topic = bench.topic(identity=["body.id"], strategies=list(strategies) or ["unique_key"])
    options.setdefault("expires", "headers.deadline")
    bench.consume(topic, handler or bench.apply, name="apply", **options)
    return bench.start(), topic


def _sent(name: str, deadline: str, key: str = "k") -> NewMessage:
    return NewMessage({"id": name, "key": key}, headers={"deadline": deadline})


def _order(name: str = "a", **more: Any) -> dict[str, Any]:
    return {"id": name, "key": "k", **more}


@pytest.mark.parametrize(
    "deadline", [PAST, "1000000000", "1000000000000"], ids=["iso", "seconds", "milliseconds"]
)
def test_a_message_past_its_deadline_does_not_run(bench: Bench, deadline: str) -> None:
    """Its outcome is `expired`, with the deadline as the reason; it is neither retried nor a dead letter."""
    app, topic = _start(bench)
    outcome = app.publish(topic, _order(), headers={"deadline": deadline})
    assert outcome.expired
    assert outcome.reason.startswith("its deadline was 2001-")
    assert effects(app) == []
    assert app.dead_letters() == []


def test_a_message_before_its_deadline_runs(bench: Bench) -> None:
    """One without a deadline runs, too."""
    app, topic = _start(bench)
    assert app.publish(topic, _order("a"), headers={"deadline": FUTURE}).applied
    assert app.publish(topic, _order("b")).applied


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
def test_an_effect_outside_of_the_database_does_not_happen(bench: Bench, *, is_async: bool) -> None:
    """A handler with external effects is not called."""

    async def act(body: dict[str, Any]) -> str:
        return bench.act(body)

    app, topic = _start(bench, act if is_async else bench.act, "none", effects="external")
    assert app.publish(topic, _order(), headers={"deadline": PAST}).expired
    assert bench.effects == []


def test_a_claim_of_an_expired_message_is_given_up(bench: Bench) -> None:
    """The same message published again, with a later deadline, is not taken for a copy."""
    verify = "suites.kit.test_expiry:never_asked"
    app, topic = _start(bench, bench.act, {"two_phase": {"verify": verify}}, effects="external")
    assert app.publish(topic, _order(), headers={"deadline": PAST}).expired
    assert app.publish(topic, _order(), headers={"deadline": FUTURE}).applied


def never_asked(_: Any) -> Any:
    """Fail: the effect of an expired message is not in doubt."""
    raise AssertionError("nothing is in doubt")


def test_a_copy_of_an_applied_message_is_a_duplicate(bench: Bench) -> None:
    """Although its own time is over."""
    app, topic = _start(bench)
    assert app.publish(topic, _order(), headers={"deadline": FUTURE}).applied
    assert app.publish(topic, _order(), headers={"deadline": PAST}).duplicate


def test_an_expired_message_leaves_no_record(bench: Bench) -> None:
    """Published again with a later deadline it runs."""
    app, topic = _start(bench)
    assert app.publish(topic, _order(), headers={"deadline": PAST}).expired
    assert app.publish(topic, _order(), headers={"deadline": FUTURE}).applied


def test_it_becomes_a_dead_letter_by_choice(bench: Bench) -> None:
    """The letter has the reason `expired`."""
    app, topic = _start(bench, expires={"deadline": "headers.deadline", "then": "dead_letter"})
    outcome = app.publish(topic, _order(), headers={"deadline": PAST})
    assert (outcome.dead_letter, outcome.code) == (True, "expired")


@pytest.mark.parametrize("deadline", ["tomorrow", "2999-01-01T00:00:00", "-5", "1e300", "nan"])
def test_an_unreadable_deadline_is_a_dead_letter(bench: Bench, deadline: str) -> None:
    """It is neither run nor dropped, since its meaning is not known."""
    app, topic = _start(bench)
    outcome = app.publish(topic, _order(), headers={"deadline": deadline})
    assert (outcome.dead_letter, outcome.code) == (True, "deadline")
    assert deadline in outcome.reason


def test_its_number_is_used_up(bench: Bench) -> None:
    """The key's next message need not wait for one that will never run."""
    app, topic = _start(bench, None, {"sequence": {"order": "body.seq"}})
    assert app.publish(topic, _order("1", seq=1), headers={"deadline": PAST}).expired
    assert app.publish(topic, _order("2", seq=2)).applied


def test_it_changes_no_state(bench: Bench) -> None:
    """The state that it would have reached can still be reached."""
    machine = {"state_machine": {"to": "body.status", "states": ["created", "paid"]}}
    app, topic = _start(bench, None, machine)
    assert app.publish(topic, _order("1", status="created")).applied
    assert app.publish(topic, _order("2", status="paid"), headers={"deadline": PAST}).expired
    assert app.publish(topic, _order("3", status="paid")).applied


def test_neighbours_in_the_unit_are_not_affected(bench: Bench) -> None:
    """Those before and behind it are applied."""
    app, topic = _start(bench)
    outcomes = app.publish_many(topic, [_sent(str(n), PAST if n == 3 else FUTURE) for n in range(6)])
    assert [outcome.expired for outcome in outcomes] == [n == 3 for n in range(6)]
    assert effects(app) == ["0", "1", "2", "4", "5"]


def test_a_neighbour_that_reads_writes_and_fails_once_is_not_affected(bench: Bench) -> None:
    """A handler that mixes SQL and objects, and fails after writing, beside expired messages of its key and of another."""

    def handle(body: dict[str, Any], session: Session) -> None:
        count = session.execute(text("SELECT count(*) FROM effects")).scalar_one()
        session.add(Effect(text=str(body["id"])))
        session.execute(text("UPDATE effects SET text = text WHERE id < 0"))
        if bench.failures:
            raise bench.failures.pop()
        assert count < 3

    app, topic = _start(bench, handle)
    bench.failures = [ConnectionError("away")]
    sent = [_sent("a", FUTURE), _sent("b", PAST), _sent("c", FUTURE, "other"), _sent("d", PAST, "other")]
    outcomes = app.publish_many(topic, sent)
    app.clock.advance("1s")
    assert [outcome.status.value for outcome in outcomes] == ["applied", "expired", "applied", "expired"]
    assert sorted(effects(app)) == ["a", "c"]


def test_a_batch_handler_gets_only_the_others(bench: Bench) -> None:
    """An expired message is no member of the call."""

    def handle(orders: Batch[dict[str, Any]], session: Session) -> None:
        session.add_all([Effect(text=str(order["id"])) for order in orders])

    app, topic = _start(bench, handle)
    outcomes = app.publish_many(topic, [_sent(name, PAST if name == "b" else FUTURE, name) for name in "abc"])
    assert [outcome.status.value for outcome in outcomes] == ["applied", "expired", "applied"]
    assert sorted(effects(app)) == ["a", "c"]


def test_an_async_handler_in_the_transaction_is_not_called(bench: Bench) -> None:
    """Its neighbour is."""

    async def handle(body: dict[str, Any], session: AsyncSession) -> None:
        session.add(Effect(text=str(body["id"])))

    app, topic = _start(bench, handle)
    outcomes = app.publish_many(topic, [_sent("a", PAST), _sent("b", FUTURE)])
    assert [outcome.status.value for outcome in outcomes] == ["expired", "applied"]
    assert effects(app) == ["b"]


def test_each_consumer_has_its_own_time(bench: Bench) -> None:
    """A message that has expired for one consumer of a topic is applied by another."""
    topic = bench.topic()
    bench.consume(topic, bench.apply, name="strict", expires="headers.deadline")

    def relaxed(body: dict[str, Any], session: Session) -> None:
        session.add(Effect(text=f"relaxed {body['id']}"))

    bench.consume(topic, relaxed, name="relaxed")
    app = bench.start()
    outcome = app.publish(topic, _order(), headers={"deadline": PAST})
    assert (outcome.of("strict").status, outcome.of("relaxed").status) == (Status.EXPIRED, Status.APPLIED)
    assert effects(app) == ["relaxed a"]


def test_its_version_is_used_up(bench: Bench) -> None:
    """The row moves past it, so the next version is not early."""
    entity = {"table": "rides", "key": "ride_id", "version": "version"}
    lock = {"optimistic_lock": {"entity": entity, "version": "body.version"}}

    def handle(body: dict[str, Any], session: Session) -> None:
        if session.get(Ride, body["key"]) is None:
            session.add(Ride(ride_id=body["key"], version=0, state=str(body["id"])))
        session.add(Effect(text=str(body["id"])))

    app, topic = _start(bench, handle, lock)
    assert app.publish(topic, _order("1", version=1), headers={"deadline": FUTURE}).applied
    assert app.publish(topic, _order("2", version=2), headers={"deadline": PAST}).expired
    assert app.publish(topic, _order("3", version=3), headers={"deadline": FUTURE}).applied
    assert effects(app) == ["1", "3"]
