"""What a message that has finally failed leaves behind: `on_dead:` of a consumer."""

from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Session

from oncemq import Envelope, FinalFailure, Publisher, Reject
from oncemq.testing import TestApp
from suites.kit.conftest import Bench, Effect, effects

BAD = ValueError("no such account")


def undo(body: dict[str, Any], failure: FinalFailure, session: Session) -> None:
    """Note what has failed, and why."""
    session.add(Effect(text=f"undo {body['id']}: {failure.code}, {failure.attempts}"))


def _start(bench: Bench, on_dead: Any = undo, *strategies: Any, **options: Any) -> tuple[TestApp, str]:
    topic = bench.topic(identity=["body.id"], strategies=list(strategies) or ["unique_key"])
    bench.consume(topic, bench.apply, name="apply", on_dead=on_dead, **options)
    return bench.start(), topic


def _order(name: str = "a") -> dict[str, Any]:
    return {"id": name, "key": "k"}


def test_it_runs_once_when_the_attempts_are_used_up(bench: Bench) -> None:
    """Its effect is there, with the dead letter that says so; the handler's is not."""
    app, topic = _start(bench)
    bench.failures = [BAD] * 3
    outcome = app.publish(topic, _order())
    app.clock.advance("2s")
    assert outcome.code == "attempts-exhausted"
    assert effects(app) == ["undo a: attempts-exhausted, 3"]
    assert len(app.dead_letters()) == 1


def test_a_rejected_message_counts_at_once(bench: Bench) -> None:
    """No attempt is left out: it has finally failed."""
    app, topic = _start(bench)
    bench.failures = [Reject("unknown currency")]
    assert app.publish(topic, _order()).code == "rejected"
    assert effects(app) == ["undo a: rejected, 1"]


def test_a_message_that_is_applied_does_not_run_it(bench: Bench) -> None:
    """Neither at the first nor at a later attempt."""
    app, topic = _start(bench)
    bench.failures = [BAD]
    app.publish(topic, _order("a"))
    app.publish(topic, _order("b"))
    app.clock.advance("2s")
    assert sorted(effects(app)) == ["a", "b"]


def test_a_later_copy_neither_runs_nor_is_undone_again(bench: Bench) -> None:
    """The message has been undone; a copy that were applied would stand beside that. It is a dead letter, too."""
    app, topic = _start(bench)
    bench.failures = [Reject("no")]
    outcome = app.publish(topic, _order())
    copy = app.duplicate(outcome)
    assert (copy.code, copy.reason) == (outcome.code, outcome.reason)
    assert effects(app) == ["undo a: rejected, 1"]


def test_a_death_before_the_dead_letter_is_sent_undoes_once(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The redelivered message becomes the dead letter; neither handler nor function run again."""
    monkeypatch.setattr("oncemq.testing.kit.app._BEFORE_ACK", "on-dead-done")
    app, topic = _start(bench)
    bench.failures = [Reject("no")]
    outcome = app.crash_after_commit(topic, _order())
    assert outcome.code == "rejected"
    assert effects(app) == ["undo a: rejected, 1"]
    assert len(app.dead_letters()) == 1


def test_its_own_failure_keeps_the_dead_letter(bench: Bench) -> None:
    """Nothing of it is stored, the letter says why, and a copy is a message like any other."""

    def broken(body: dict[str, Any], session: Session) -> None:
        undo(body, FinalFailure("x", "x", 1), session)
        session.flush()
        raise RuntimeError("the bank is closed")

    app, topic = _start(bench, broken)
    bench.failures = [Reject("no")]
    outcome = app.publish(topic, _order())
    assert outcome.code == "rejected"
    assert effects(app) == []
    (letter,) = app.dead_letters()
    assert letter.on_dead == "failed: RuntimeError: the bank is closed"
    assert app.duplicate(outcome).applied


def test_it_may_publish(bench: Bench) -> None:
    """What it publishes is sent with its effect, once."""
    told = bench.topic("told", identity=["body.id"])

    def tell(envelope: Envelope, publisher: Publisher) -> None:
        publisher.publish(told, {"id": envelope.identity, "key": envelope.key})

    app, topic = _start(bench, tell)
    bench.failures = [Reject("no")]
    app.publish(topic, _order())
    assert [message.body for message in app.published(told)] == [{"id": "a", "key": "k"}]


def test_a_replayed_message_runs_again(bench: Bench) -> None:
    """Replaying says that it shall: what was noted is removed, and the function may run again."""
    app, topic = _start(bench)
    bench.failures = [Reject("no"), Reject("no"), Reject("no")]
    outcome = app.replay(app.publish(topic, _order()))
    assert outcome.code == "rejected"
    assert effects(app) == ["undo a: rejected, 1"] * 2
    bench.failures = []
    assert app.replay(outcome).applied
    assert effects(app)[2:] == ["a"]


def test_what_is_tried_again_is_not_undone_by_a_neighbour(bench: Bench) -> None:
    """Messages of one unit: only the one that failed."""
    app, topic = _start(bench)
    bench.failures = [Reject("no")]
    app.shuffle([(topic, _order(name)) for name in "abcd"])
    found = effects(app)
    assert len([text for text in found if text.startswith("undo ")]) == 1
    assert len(found) == 4


def test_a_key_that_waits_goes_on_after_it(bench: Bench) -> None:
    """With `on_retry: hold_key` the failing message is parked; what waits behind it runs when it is dead and undone."""
    app, topic = _start(bench, on_retry="hold_key")
    bench.failures = [BAD] * 3
    outcomes = app.publish_many(topic, [_order("a"), _order("b")])
    # On real servers what waits in the ledger is looked for each second: twice, here.
    app.clock.advance("4s")
    assert outcomes[0].code == "attempts-exhausted"
    assert outcomes[1].applied
    assert effects(app) == ["undo a: attempts-exhausted, 3", "b"]


def test_async_handlers_have_it_too(bench: Bench) -> None:
    """The function itself is a plain one."""

    async def fail(body: dict[str, Any], session: AsyncSession) -> None:
        await session.execute(text("SELECT 1"))
        raise Reject(f"no {body['id']}")

    topic = bench.topic(identity=["body.id"])
    bench.consume(topic, fail, name="apply", on_dead=undo)
    app = bench.start()
    assert app.publish(topic, _order()).code == "rejected"
    assert effects(app) == ["undo a: rejected, 1"]
