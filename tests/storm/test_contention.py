"""Deadlocks, lock time-outs and serialization failures by the thousand: no message's fault, and no half effect.

`ONCEMQ_STORM_CONTENTIONS` says how many in all; `make storm` forces 10,000.
"""

import json
import os
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta

import pytest
from sqlalchemy import Engine, create_engine, select, text

from matrix.broker import HoldingBroker
from oncemq.ledger import schema
from oncemq.ledger.database.engine import make_engine
from oncemq.ledger.records.processed import TABLE as PROCESSED
from oncemq.message.envelope import Message
from oncemq_strategies.unique_key.strategy import UniqueKey
from storm.attack.contention import ROWS, Contention, snapshots
from support.database.shared_database import shared_database
from support.effects import Base, Effect, empty
from support.engine import make_app, make_consumer, running
from support.heard import Heard
from support.model.random_broker import TAG
from support.units import build

CODES = {
    ("postgresql", "deadlock"): "40P01",
    ("postgresql", "lock time-out"): "55P03",
    ("postgresql", "serialization failure"): "40001",
    ("mariadb", "deadlock"): "1213",
    ("mariadb", "lock time-out"): "1205",
    ("mariadb", "raised"): "1213",
}
"""What each server says; under READ COMMITTED MariaDB has no serialization failure but the one that is raised."""
COUNT = int(os.environ.get("ONCEMQ_STORM_CONTENTIONS", "200"))
EACH = -(-COUNT // len(CODES))
_ROUND = 400
_ROUNDS_WITHOUT = 5
_TROUBLED = 4
"""One of so many messages is troubled, so that its unit has healthy neighbours."""


@pytest.fixture
def url(request: pytest.FixtureRequest, server: str) -> Iterator[str]:
    """Lend a database on one of the servers."""
    with shared_database(request.getfixturevalue(f"{server}_url")) as url:
        if server == "postgresql":
            _look_for_deadlocks_soon(url)
        yield url


def _look_for_deadlocks_soon(url: str) -> None:
    engine = create_engine(url, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(text(f"ALTER DATABASE {engine.url.database} SET deadlock_timeout = '30ms'"))
    engine.dispose()


@pytest.fixture
def engine(url: str) -> Iterator[Engine]:
    """Lend the app's engine."""
    engine = make_engine(url)
    schema.create(engine, [PROCESSED])
    Base.metadata.create_all(engine)
    empty(engine, shared=ROWS)
    yield engine
    engine.dispose()


@pytest.fixture
def contention(url: str, kind: str, engine: Engine) -> Iterator[Contention]:
    """Lend the trouble, and let go of everything also when the test fails: connections left open would fail another one."""
    if kind == "serialization failure":
        snapshots(engine)
    rivals = make_engine(url)
    with closing(Contention(rivals, kind)) as made:
        yield made
    rivals.dispose()


@pytest.mark.server
@pytest.mark.timeout(120 + COUNT)
@pytest.mark.parametrize(("server", "kind"), CODES)
def test_what_the_database_does_to_transactions_is_no_messages_fault(
    server: str, kind: str, engine: Engine, contention: Contention
) -> None:
    """Every message takes effect whole, once, at its first attempt; nothing pauses."""
    broker, heard = HoldingBroker(1), Heard()
    consumer = make_consumer(
        contention.handle, [build(UniqueKey, engine, "points")], batch_limit=8, name="points"
    )
    code, sent, without = CODES[server, kind], 0, 0
    with running(make_app(broker.fronts[0], engine, consumer), observers=[heard]):
        while contention.met[code] < EACH:
            met = contention.met[code]
            numbers = range(sent, sent + min(_ROUND, _TROUBLED * (EACH - contention.met[code])))
            broker.send(0, [_message(number) for number in numbers])
            sent, tags = numbers.stop, {str(number) for number in numbers}
            assert broker.settled(tags, timedelta(seconds=60)) == set(), heard.of("infrastructure_failed")[
                -3:
            ]
            # The last rounds have one or two of them, and the database may choose the rival as its victim.
            without = 0 if contention.met[code] > met else without + 1
            assert without < _ROUNDS_WITHOUT, "no message of several rounds met the trouble"
    assert set(contention.met) == {code}
    assert broker.ended == {str(number): "acknowledged" for number in range(sent)}
    assert broker.retries == {}
    assert broker.wrong == []
    assert heard.of("consumer_paused") == []
    assert _effects(engine) == {
        (f"o{number}", half): 1 for number in range(sent) for half in ("first", "second")
    }


def _message(number: int) -> Message:
    body = {
        "id": f"o{number}",
        "key": f"k{number % 30}",
        "number": number // _TROUBLED,
        "troubled": number % _TROUBLED == 0,
    }
    return Message("orders", json.dumps(body).encode(), headers={TAG: str(number)})


def _effects(engine: Engine) -> Counter[tuple[str, str]]:
    with engine.connect() as connection:
        return Counter((row[0], row[1]) for row in connection.execute(select(Effect.order_id, Effect.key)))
