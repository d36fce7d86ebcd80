"""Routes with strategies and retries of their own: neighbours, the order of a key, copies, another consumer of the topic."""

from typing import Any

from sqlalchemy import func, insert, select
from sqlalchemy.orm import Session

from oncemq.testing import Status, TestApp
from suites.kit.conftest import FAILED, Bench, Effect, effects, fails_once

KEYS = ("a", "A")
LATER = {"attempts": 4, "backoff": {"first": "20ms", "factor": 1, "max": "20ms", "jitter": 0}}


def _messages() -> list[dict[str, Any]]:
    """Return six messages of each key, of both kinds in turns."""
    return [
        {"id": f"{key}-{number}", "key": key, "kind": "paid" if number % 2 else "moved"}
        for number in range(6)
        for key in KEYS
    ]


def _counts(body: dict[str, Any], session: Session) -> None:
    """Read what the key has, and write by SQL what was seen."""
    mine = select(func.count()).select_from(Effect).where(func.substr(Effect.text, 1, 2) == f"{body['key']}-")
    session.execute(insert(Effect).values(text=f"{body['id']} saw {session.scalar(mine)}"))


def _notes(body: dict[str, Any], session: Session) -> None:
    session.add(Effect(text=f"noted {body['id']}"))


def _start(bench: Bench, **options: Any) -> tuple[TestApp, str]:
    FAILED.clear()
    topic = bench.topic()
    routes = bench.app.routes(topic=topic, name="by-kind", by="body.kind", **options)
    routes.route("paid")(_counts)
    other = [{"unique_key": {"fingerprint": ["body.kind"]}}]
    routes.route("moved", strategies=other, retry=LATER)(fails_once)
    bench.consume(topic, _notes, name="notes")
    return bench.start(), topic


def test_a_key_keeps_its_order_over_routes_and_retries(bench: Bench) -> None:
    """One route fails once after writing, the other reads what the key has: with held keys it sees exactly what came before."""
    app, topic = _start(bench, on_retry="hold_key")
    outcomes = app.publish_many(topic, _messages())
    app.clock.advance("3s")
    assert all(outcome.of("by-kind").status is Status.APPLIED for outcome in outcomes)
    found = effects(app)
    for key in KEYS:
        wanted = [f"{key}-{number} saw {number}" if number % 2 else f"{key}-{number}" for number in range(6)]
        assert [text for text in found if text.startswith(f"{key}-")] == wanted


def test_copies_over_routes_have_one_effect_for_each_consumer(bench: Bench) -> None:
    """Whatever its route's strategies, and although each message of one route fails once."""
    app, topic = _start(bench)
    app.publish_many(topic, [*_messages(), *_messages()])
    app.clock.advance("3s")
    wanted = sorted(message["id"] for message in _messages())
    found = effects(app)
    assert sorted(text.partition(" saw ")[0] for text in found if not text.startswith("noted ")) == wanted
    assert sorted(text.removeprefix("noted ") for text in found if text.startswith("noted ")) == wanted
