"""A handler that calls `session.commit()` is told once that the framework commits."""

import json
from typing import Any

from sqlalchemy import Engine
from sqlalchemy.orm import Session

from oncemq.testing.scripted import ScriptedAdapter
from support.database.databases import database
from support.effects import effects, empty, give
from support.engine import make_app, make_consumer, running
from support.heard import Heard

__all__ = ["database"]


def commits(body: dict[str, Any], session: Session) -> None:
    """Do what a handler without a framework does."""
    give(session, body)
    session.commit()


def keeps(body: dict[str, Any], session: Session) -> None:
    """Leave the commit to the framework."""
    give(session, body)


def warnings(engine: Engine, handler: Any) -> list[str]:
    """Return what two messages in two units lead to."""
    empty(engine)
    adapter, heard = ScriptedAdapter(), Heard()
    with running(make_app(adapter, engine, make_consumer(handler)), observers=[heard]):
        for number in (1, 2):
            adapter.deliver(json.dumps({"id": f"o{number}", "key": "k"}).encode())
            adapter.wait_until(lambda a, number=number: len(a.acknowledged) == number)
    assert effects(engine) == ["o1", "o2"]
    return [told.arguments[0] for told in heard.of("warned") if "session.commit()" in told.arguments[0]]


def test_a_commit_is_warned_of_once(database: Engine) -> None:
    """The warning names the consumer and what to do; the second message brings none."""
    (text,) = warnings(database, commits)
    assert "which only flushes" in text
    assert "leave the call out" in text


def test_without_a_commit_nothing_is_said(database: Engine) -> None:
    """A handler as it should be brings no warning."""
    assert warnings(database, keeps) == []
