"""Requests of tests and handlers, answered by the app's own consumers with `reply: true`."""

from typing import Any

import pytest
from sqlalchemy.orm import Session

from oncemq import Reject
from oncemq.errors import HandlerFault, RequestFailed, RequestTimeout
from oncemq.testing import TestApp
from suites.kit.conftest import Bench, effects

KEPT = [{"unique_key": {"result": True}}]


def _start(bench: Bench) -> tuple[TestApp, str]:
    topic = bench.topic(identity=["body.id"], strategies=KEPT)
    bench.consume(topic, bench.apply, name="apply", reply=True)
    return bench.start(), topic


def _order(name: str = "a") -> dict[str, Any]:
    return {"id": name, "key": "k"}


def test_a_request_has_the_committed_result(bench: Bench) -> None:
    """Asked again it has the stored one, and the effect is there once."""
    app, topic = _start(bench)
    with app.publisher() as publisher:
        assert [publisher.request(topic, _order(), wait="20s") for _ in range(2)] == ["did a"] * 2
    assert effects(app) == ["a"]


def test_an_answer_may_take_a_retry(bench: Bench) -> None:
    """It comes when the message is applied."""
    app, topic = _start(bench)
    bench.failures = [ValueError("not yet")]
    with app.publisher() as publisher:
        assert publisher.request(topic, _order(), wait="20s") == "did a"
    assert effects(app) == ["a"]


def test_a_request_that_is_rejected_has_failed(bench: Bench) -> None:
    """The reason and the words of the handler are in the error, as in production."""
    app, topic = _start(bench)
    bench.failures = [Reject("no such account")]
    with app.publisher() as publisher, pytest.raises(RequestFailed, match="no such account") as caught:
        publisher.request(topic, _order(), wait="20s")
    assert caught.value.reason == "rejected"
    assert len(app.dead_letters()) == 1


def test_a_request_that_nothing_answers_ends_in_time(bench: Bench) -> None:
    """Its effect is there nevertheless, and the test goes on."""
    topic = bench.topic()
    bench.consume(topic, bench.apply, name="apply")
    app = bench.start()
    with app.publisher() as publisher, pytest.raises(RequestTimeout):
        publisher.request(topic, _order(), wait="1s")
    assert app.publish(topic, _order("b")).applied
    assert effects(app) == ["a", "b"]


def test_a_handler_outside_of_transactions_may_ask(bench: Bench) -> None:
    """The answering consumer works while the asking one waits."""
    priced, asking = bench.topic("prices", identity=["body.id"], strategies=KEPT), bench.topic("asks")
    bench.consume(priced, bench.apply, name="price", reply=True)
    heard: list[Any] = []

    def ask(body: dict[str, Any]) -> None:
        heard.append(publisher.request(priced, body, wait="20s"))

    bench.consume(asking, ask, name="ask", effects="external", strategies=["two_phase"])
    app = bench.start()
    with app.publisher() as publisher:
        assert app.publish(asking, _order()).applied
    assert heard == ["did a"]
    assert effects(app) == ["a"]


def test_a_handler_in_a_transaction_must_not_ask(bench: Bench) -> None:
    """It would wait with rows locked; nothing is published."""
    priced, asking = bench.topic("prices", identity=["body.id"], strategies=KEPT), bench.topic("asks")
    bench.consume(priced, bench.apply, name="price", reply=True)
    faults: list[HandlerFault] = []

    def ask(body: dict[str, Any], session: Session) -> None:
        with pytest.raises(HandlerFault, match="open transaction") as caught:
            publisher.request(priced, body, wait="20s")
        faults.append(caught.value)

    bench.consume(asking, ask, name="ask")
    app = bench.start()
    with app.publisher() as publisher:
        app.publish(asking, _order())
    assert len(faults) == 1
    assert effects(app) == []


def test_a_request_is_among_the_published_messages(bench: Bench) -> None:
    """With its own outcome."""
    app, topic = _start(bench)
    with app.publisher() as publisher:
        publisher.request(topic, _order(), wait="20s")
    (request,) = app.published(topic)
    assert (request.body, request.outcome.applied) == (_order(), True)
