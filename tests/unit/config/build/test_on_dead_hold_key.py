"""`on_dead: hold_key`: how it is written, and where it is refused, in words."""

from pathlib import Path

import pytest

from support.declared import BASE, loaded, problems

HANDLERS = """
from sqlalchemy.orm import Session

from oncemq import FinalFailure


def handle(order: dict, session: Session) -> None:
    ...


def undo(order: dict, failure: FinalFailure, session: Session) -> None:
    ...
"""


def _declared(on_dead: str, more: str = "") -> str:
    text = BASE.replace("strategies: [decide]", "identity: [body.id], strategies: [unique_key]")
    return text.replace("topic: orders,", f"topic: orders, on_dead: {on_dead},{more}")


def _said(folder: Path, text: str) -> str:
    return "\n".join(str(each) for each in problems(folder, text, handlers=HANDLERS))


@pytest.mark.parametrize(
    ("on_dead", "most"),
    [
        ("hold_key", 1000),
        ("{hold_key: true}", 1000),
        ("{hold_key: true, most: 7}", 7),
        ('{run: "MODULE:undo"}', None),
        ("MODULE:undo", None),
    ],
)
def test_the_word_and_the_mapping_mean_the_same(tmp_path: Path, on_dead: str, most: int | None) -> None:
    """With the limit that is written, or a thousand."""
    (consumer,) = loaded(tmp_path, _declared(on_dead), handlers=HANDLERS).plan.consumers
    assert consumer.hold_dead == most
    assert consumer.hold_key is (most is not None)
    assert (consumer.on_dead is not None) is ("undo" in on_dead)


def test_a_function_and_a_held_key_go_together(tmp_path: Path) -> None:
    """One does not exclude the other."""
    text = _declared('{run: "MODULE:undo", hold_key: true}')
    (consumer,) = loaded(tmp_path, text, handlers=HANDLERS).plan.consumers
    assert (consumer.on_dead is not None, consumer.hold_dead) == (True, 1000)


@pytest.mark.parametrize(
    ("on_dead", "more", "said"),
    [
        ("{most: 7}", "", "names neither run nor hold_key"),
        ('{run: "MODULE:undo", most: 7}', "", "has most, which belongs to hold_key"),
        ("{hold_key: true, most: 0}", "", "most"),
        ("{hold_key: true, least: 1}", "", "least"),
        ("hold", "", "'hold' does not name a Python object"),
        ("hold_key", " on_retry: go_on,", "on_retry: go_on gives it up before"),
        ("hold_key", " effects: external,", "this consumer has none"),
        ("hold_key", " mode: broadcast,", "not possible with mode: broadcast"),
    ],
)
def test_what_cannot_be_is_refused(tmp_path: Path, on_dead: str, more: str, said: str) -> None:
    """At its place in the file."""
    text = _declared(on_dead, more)
    if "broadcast" in more:
        text = f"instance: one\n{text}"
    found = _said(tmp_path, text)
    assert said in found
    assert "app.yaml:" in found


def test_requests_are_not_answered_late(tmp_path: Path) -> None:
    """What waits in the ledger has no answer."""
    text = _declared("hold_key", " reply: true,").replace("[unique_key]", "[{unique_key: {result: true}}]")
    found = _said(tmp_path, text.replace("scripted://host", "amqp://host"))
    assert "a message that on_dead: hold_key keeps in the ledger is not answered" in found


def test_shards_are_refused(tmp_path: Path) -> None:
    """A dead letter that holds its key would be looked for in the first database only."""
    text = _declared("hold_key").replace(
        'database: {url: "sqlite://"}', 'database: {shards: ["sqlite:///a.db", "sqlite:///b.db"]}'
    )
    assert "not possible with several shards" in _said(tmp_path, text)
