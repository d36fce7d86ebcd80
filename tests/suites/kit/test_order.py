"""Outcomes where the order of messages matters: states, sequences, versions and held keys."""

from typing import Any

from sqlalchemy.orm import Session

from oncemq.testing import Status, TestApp
from suites.kit.conftest import Bench, Effect, Ride, effects

STATES = ["created", "assigned", "departed", "arrived"]


def _ride(state: str, key: str = "r") -> dict[str, Any]:
    return {"id": f"{key}-{state}", "key": key, "status": state}


def _number(number: int, key: str = "k") -> dict[str, Any]:
    return {"id": str(number), "key": key, "seq": number}


def _start(bench: Bench, *strategies: Any, handler: Any = None, **options: Any) -> tuple[TestApp, str]:
    topic = bench.topic(strategies=list(strategies), **options)
    bench.consume(topic, handler or bench.apply, name="apply")
    return bench.start(), topic


def _machine(early: str = "park", **options: Any) -> dict[str, Any]:
    return {"state_machine": {"to": "body.status", "states": STATES, "early": early, **options}}


def test_states_in_order_are_applied(bench: Bench) -> None:
    """Each is the next one."""
    app, topic = _start(bench, _machine())
    assert [app.publish(topic, _ride(state)).status for state in STATES] == [Status.APPLIED] * 4


def test_an_early_state_is_parked_and_follows(bench: Bench) -> None:
    """Its outcome changes when the missing state arrives."""
    app, topic = _start(bench, _machine())
    app.publish(topic, _ride("created"))
    early = app.publish(topic, _ride("departed"))
    assert early.parked
    assert app.publish(topic, _ride("assigned")).applied
    assert early.applied
    assert effects(app) == ["r-created", "r-assigned", "r-departed"]


def test_an_old_state_is_stale(bench: Bench) -> None:
    """What was overtaken does not run."""
    app, topic = _start(bench, _machine("run"))
    assert app.publish(topic, _ride("departed")).applied
    old = app.publish(topic, _ride("created"))
    assert old.stale
    assert effects(app) == ["r-departed"]


def test_the_same_state_is_a_duplicate(bench: Bench) -> None:
    """The state is the identity."""
    app, topic = _start(bench, _machine())
    outcome = app.publish(topic, _ride("created"))
    assert app.duplicate(outcome).duplicate


def test_shuffled_states_all_take_effect_in_order(bench: Bench) -> None:
    """The outcomes come in the order given, whatever the order of arrival."""
    app, topic = _start(bench, _machine())
    outcomes = app.shuffle([(topic, _ride(state)) for state in STATES], seed=3)
    assert all(outcome.applied for outcome in outcomes)
    assert effects(app) == [f"r-{state}" for state in STATES]


def test_shuffled_copies_take_effect_once(bench: Bench) -> None:
    """Messages that were published may be sent again in any order."""
    app, topic = _start(bench, _machine())
    outcomes = [app.publish(topic, _ride(state)) for state in STATES]
    again = app.shuffle(outcomes)
    assert all(outcome.duplicate or outcome.stale for outcome in again)
    assert effects(app) == [f"r-{state}" for state in STATES]


def test_an_early_state_may_be_refused(bench: Bench) -> None:
    """`early: reject` is a dead letter."""
    app, topic = _start(bench, _machine("reject"))
    assert app.publish(topic, _ride("arrived")).dead_letter


def test_a_gap_ends_as_a_dead_letter(bench: Bench) -> None:
    """When the gap's time is over, the message that has waited so long is a dead letter."""
    app, topic = _start(bench, _machine(gap_timeout="500ms", on_gap="dead_letter"))
    early = app.publish(topic, _ride("departed"))
    assert early.parked
    app.clock.advance("2s")
    assert (early.dead_letter, early.code) == (True, "gap")


def test_numbers_in_any_order_run_in_theirs(bench: Bench) -> None:
    """A sequence parks what is early."""
    app, topic = _start(bench, {"sequence": {"order": "body.seq"}})
    outcomes = app.shuffle([(topic, _number(number)) for number in range(1, 7)], seed=1)
    assert all(outcome.applied for outcome in outcomes)
    assert effects(app) == [str(number) for number in range(1, 7)]


def test_a_missing_number_is_skipped_when_its_time_is_over(bench: Bench) -> None:
    """`on_gap: skip` lets the next ones run; the missing one is stale then."""
    app, topic = _start(bench, {"sequence": {"order": "body.seq", "gap_timeout": "500ms", "on_gap": "skip"}})
    app.publish(topic, _number(1))
    third = app.publish(topic, _number(3))
    assert third.parked
    app.clock.advance("2s")
    assert third.applied
    assert app.publish(topic, _number(2)).stale


def test_another_key_does_not_wait(bench: Bench) -> None:
    """A gap is about one key."""
    app, topic = _start(bench, {"sequence": {"order": "body.seq"}})
    assert app.publish(topic, _number(2, "a")).parked
    assert app.publish(topic, _number(1, "b")).applied


def _save(body: dict[str, Any], session: Session) -> None:
    ride = session.get(Ride, body["key"])
    if ride is None:
        session.add(Ride(ride_id=body["key"], version=0, state=body["status"]))
    else:
        ride.state = body["status"]
    session.add(Effect(text=body["status"]))


def _versioned(bench: Bench, **options: Any) -> tuple[TestApp, str]:
    entity = {"table": "rides", "key": "ride_id", "version": "version"}
    lock = {"optimistic_lock": {"entity": entity, "version": "body.version", **options}}
    return _start(bench, lock, handler=_save)


def test_versions_follow_each_other(bench: Bench) -> None:
    """The strategy keeps the version in the user's row."""
    app, topic = _versioned(bench)
    for number, state in enumerate(STATES[:3], 1):
        assert app.publish(topic, _ride(state) | {"version": number}).applied
    with app.session() as session:
        ride = session.get_one(Ride, "r")
        assert (ride.version, ride.state) == (3, "departed")


def test_an_old_version_is_stale(bench: Bench) -> None:
    """A row that is newer than the message stays."""
    app, topic = _versioned(bench, early="run")
    assert app.publish(topic, _ride("departed") | {"version": 3}).applied
    assert app.publish(topic, _ride("created") | {"version": 1}).stale


def test_an_early_version_waits_for_the_one_before(bench: Bench) -> None:
    """Parked, and applied when the row has reached the version before."""
    app, topic = _versioned(bench, early="park")
    app.publish(topic, _ride("created") | {"version": 1})
    early = app.publish(topic, _ride("departed") | {"version": 3})
    assert early.parked
    app.publish(topic, _ride("assigned") | {"version": 2})
    assert early.applied


def test_a_prepared_row_decides(bench: Bench) -> None:
    """A test may begin with rows."""
    app, topic = _versioned(bench)
    with app.session() as session:
        session.add(Ride(ride_id="r", version=4, state="departed"))
        session.commit()
    assert app.publish(topic, _ride("created") | {"version": 2}).stale
    assert app.publish(topic, _ride("arrived") | {"version": 5}).applied


def test_later_messages_of_a_key_wait_for_a_retry(bench: Bench) -> None:
    """A chain whose order matters holds the key while one of its messages waits."""
    app, topic = _start(bench, _machine())
    bench.failures = [ValueError("once")]
    first, second = app.publish_many(topic, [_ride("created"), _ride("assigned")])
    app.clock.advance("3s")
    assert (first.applied, second.applied) == (True, True)
    assert effects(app) == ["r-created", "r-assigned"]


def test_a_message_that_waits_for_its_row_has_not_been_tried(bench: Bench) -> None:
    """Immediate tries are for failures: a strategy that asks for a retry is none, and what is late then is stale."""
    machine = {
        "to": "body.status",
        "states": STATES,
        "entity": {"table": "rides", "key": "ride_id", "state": "state", "missing": "retry"},
    }
    topic = bench.topic(strategies=[{"state_machine": machine}])
    bench.consume(topic, bench.apply, name="apply", retry={"immediate": 2})
    app = bench.start()
    early = app.publish(topic, _ride("assigned"))
    assert (early.status, early.attempt, effects(app)) == (Status.RETRIED, 1, [])
    with app.session() as session:
        session.add(Ride(ride_id="r", version=1, state="arrived"))
        session.commit()
    app.clock.advance("1s")
    assert (early.stale, early.dead_letter) == (True, False)
