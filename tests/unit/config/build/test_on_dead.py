"""`on_dead:` of a consumer: what is refused, in words, and what is not."""

from pathlib import Path

import pytest

from support.declared import BASE, loaded, problems

HANDLERS = """
from sqlalchemy.orm import Session

from oncemq import Batch, FinalFailure


def handle(order: dict, session: Session) -> None:
    ...


def undo(order: dict, failure: FinalFailure, session: Session) -> None:
    ...


async def later(order: dict) -> None:
    ...


def many(orders: Batch[dict], session: Session) -> None:
    ...


def odd(order: dict, bank: int) -> None:
    ...
"""


def _declared(on_dead: str, strategies: str = "[unique_key]") -> str:
    text = BASE.replace("strategies: [decide]", f"identity: [body.id], strategies: {strategies}")
    return text.replace("topic: orders,", f"topic: orders, on_dead: {on_dead},")


def _said(folder: Path, text: str) -> str:
    return "\n".join(str(each) for each in problems(folder, text, handlers=HANDLERS))


def test_a_function_is_found_by_its_name(tmp_path: Path) -> None:
    """It is bound like a handler."""
    plan = loaded(tmp_path, _declared("MODULE:undo"), handlers=HANDLERS).plan
    on_dead = plan.consumers[0].on_dead
    assert on_dead is not None
    assert on_dead.name.endswith(":undo")
    assert [strategy.name for strategy in plan.consumers[0].strategies] == ["unique_key", "on_dead"]


@pytest.mark.parametrize(
    ("on_dead", "said"),
    [
        ("MODULE:gone", "gone"),
        ("MODULE:later", ":later is an async function"),
        ("MODULE:many", ":many is for batches"),
        ("MODULE:odd", "bank"),
    ],
)
def test_what_cannot_be_called_is_refused(tmp_path: Path, on_dead: str, said: str) -> None:
    """With the name, at its place in the file."""
    found = _said(tmp_path, _declared(on_dead))
    assert said in found
    assert "app.yaml:" in found


@pytest.mark.parametrize(
    "strategies", ["[none]", "[{unique_key: {table: things, columns: {name: body.id}}}]", "[decide]"]
)
def test_a_chain_without_the_ledgers_record_is_refused(tmp_path: Path, strategies: str) -> None:
    """Nothing would keep a copy from being applied beside what was undone."""
    found = _said(tmp_path, _declared("MODULE:undo", strategies))
    assert "on_dead shares the record by which unique_key and tiered know an applied message" in found
