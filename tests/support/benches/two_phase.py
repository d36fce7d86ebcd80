"""`two_phase` on a database, with handlers and answers of the test's own."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy import select, update
from sqlalchemy.orm import Session

from oncemq import Envelope
from oncemq.common.clock import SystemClock
from oncemq.contracts.verdict import Outcome, Verdict
from oncemq.ledger.records import claims
from oncemq.testing.strategy_suite.bench import Bench, message
from oncemq.testing.strategy_suite.chain_spec import ChainSpec

DEADLINE = 20.0


MakeDirect = Callable[..., Bench]


@pytest.fixture
def make_direct(tmp_path: Path) -> Iterator[MakeDirect]:
    """Lend benches of one consumer with this strategy."""
    scope, benches = f"suite.c{uuid4().hex[:8]}", list[Bench]()

    def make(*, handler: Any = None, **options: Any) -> Bench:
        chain = ChainSpec([("two_phase", options)], direct=True)
        benches.append(Bench(f"sqlite:///{tmp_path}/claims.db", chain, scope, handler))
        return benches[-1]

    yield make
    for bench in benches:
        bench.close()


def raising(error: BaseException) -> Callable[..., None]:
    """Return a handler that raises."""

    def handler(_body: Any, _session: Session) -> None:
        raise error

    return handler


def rows(bench: Bench) -> list[Any]:
    """Return what the ledger holds of this consumer."""
    with bench.engine.connect() as connection:
        mine = select(claims.TABLE).where(claims.TABLE.c.consumer == bench.scope)
        return list(connection.execute(mine.order_by(claims.TABLE.c.identity)))


def change(bench: Bench, **values: Any) -> None:
    """Change the consumer's claims behind everyone's back."""
    with bench.engine.begin() as connection:
        mine = update(claims.TABLE).where(claims.TABLE.c.consumer == bench.scope)
        connection.execute(mine.values(**values))


def fail_once(bench: Bench, error: BaseException | None = None) -> None:
    """Leave message 1 of `a` in doubt, and let handlers succeed from now on."""
    bench.handler = raising(error or RuntimeError("the server hung up"))
    assert bench.deliver(message("a", 1)) == [Outcome.RETRY]
    bench.handler = bench.apply


def only(bench: Bench) -> Verdict:
    """Deliver message 1 of `a` and return the verdict."""
    (verdict,) = bench.verdicts(message("a", 1))
    return verdict


def envelope(identity: str = "a") -> Envelope:
    """Return a message."""
    return Envelope("b", "t", "g", "key", 1, identity, None, 1, {"x": "ü"}, b"\x00\xff", SystemClock().now())
