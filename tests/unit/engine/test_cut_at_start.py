"""A connection to the database that is cut while an app starts: the step is repeated."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import Engine, event, make_url
from sqlalchemy.orm import Session

from oncemq.ledger.database.engine import make_engine
from oncemq.testing.scripted import ScriptedAdapter
from oncemq.testing.tcp_proxy import TcpProxy
from support.effects import Base, effects, give
from support.engine import make_app, make_consumer, running

STARTS = 6
"""So many of the start's statements are tried, spread evenly; ONCEMQ_STARTS=100 tries each."""


class Cuts:
    """Cuts every connection at one statement, and counts them."""

    def __init__(self, door: TcpProxy) -> None:
        self.door = door
        self.seen = 0
        self.at = -1

    def __call__(self, *_: Any) -> None:
        """Count a statement."""
        if self.seen == self.at:
            self.door.cut()
        self.seen += 1


@contextmanager
def proxied(url: str) -> Iterator[tuple[Engine, Cuts]]:
    """An engine behind a proxy that can cut."""
    there = make_url(url)
    with TcpProxy(there.host or "127.0.0.1", there.port or 0) as door:
        engine = make_engine(
            there.set(host="127.0.0.1", port=door.port).render_as_string(hide_password=False)
        )
        cuts = Cuts(door)
        event.listen(engine, "before_cursor_execute", cuts)
        try:
            yield engine, cuts
        finally:
            engine.dispose()


@pytest.mark.parametrize("kind", ["postgresql", "mariadb"])
def test_a_cut_at_any_statement_of_the_start_is_survived(kind: str, request: pytest.FixtureRequest) -> None:
    """Whichever statement of the start is the last of its connection, the app starts and works."""
    with proxied(request.getfixturevalue(f"{kind}_database")) as (engine, cuts):
        Base.metadata.create_all(engine)
        plan = make_app(ScriptedAdapter(), engine, make_consumer(give_one))
        statements = at_start(plan, cuts, -1)
        assert statements > 3
        tried = range(0, statements, max(1, statements // int(os.environ.get("ONCEMQ_STARTS", STARTS))))
        for at in tried:
            at_start(make_app(ScriptedAdapter(), engine, make_consumer(give_one)), cuts, at)
        assert effects(engine) == ["1"] * (1 + len(tried))


def give_one(order: dict[str, Any], session: Session) -> None:
    """Leave one effect."""
    give(session, order)


def at_start(plan: Any, cuts: Cuts, at: int) -> int:
    """Start the app with a cut at a statement, and let it handle a message; returns how many statements the start took."""
    cuts.seen, cuts.at = 0, at
    (adapter,) = plan.adapters.values()
    with running(plan):
        taken, cuts.at = cuts.seen, -1
        adapter.deliver(json.dumps({"id": "1", "key": "k"}).encode())
        adapter.wait_until(lambda seen: len(seen.acknowledged) == 1, 30)
    return taken
