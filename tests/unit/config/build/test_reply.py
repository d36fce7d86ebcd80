"""`reply:` of a consumer: what is refused, in words, since a copy of a request would get no answer or another one."""

from pathlib import Path

import pytest

from support.declared import BASE, loaded, problems

HANDLERS = """
from sqlalchemy.orm import Session

from oncemq import Batch


def handle(order: dict, session: Session) -> None:
    ...


def many(orders: Batch[dict], session: Session) -> None:
    ...
"""
KEPT = "[unique_key: {result: true}]"


def _declared(strategies: str = KEPT, more: str = "", url: str = "amqp://localhost/") -> str:
    text = BASE.replace("strategies: [decide]", f"identity: [body.id], strategies: {strategies}")
    return text.replace("scripted://host", url).replace(
        "topic: orders,", f"topic: orders, reply: true, {more}"
    )


def test_a_consumer_that_stores_results_may_reply(tmp_path: Path) -> None:
    """Its chain gets the step that gives messages their answers."""
    plan = loaded(tmp_path, _declared(), handlers=HANDLERS).plan
    assert [strategy.name for strategy in plan.consumers[0].strategies] == ["unique_key", "reply"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (_declared("[unique_key]"), "write effects: database and strategies: [unique_key: {result: true}]"),
        (_declared("[decide]"), "this consumer stores none"),
        (_declared("[unique_key: {result: true}, decide]"), "or another strategy decides, too"),
        (_declared(more="effects: external,"), "this consumer stores none"),
        (_declared(more="on_retry: hold_key,"), "write on_retry: go_on"),
        (_declared(url="scripted://host"), "broker 'main' cannot answer requests"),
        (_declared(url="kafka://localhost:9092"), "broker 'main' cannot answer requests"),
        (_declared(url="rocketmq+native://localhost:9876"), "broker 'main' cannot answer requests"),
        (_declared().replace("MODULE:handle", "MODULE:many"), "a handler for batches has no result"),
    ],
)
def test_what_cannot_answer_copies_alike_is_refused(tmp_path: Path, text: str, said: str) -> None:
    """With what to write instead."""
    assert said in "\n".join(str(each) for each in problems(tmp_path, text, handlers=HANDLERS))
