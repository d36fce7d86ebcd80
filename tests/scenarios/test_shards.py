"""A sharded database: each key with all its duplicates on one shard, whatever strategy guards it."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, create_engine, func, make_url, select, text
from sqlalchemy.orm import Session

from oncemq import App, Done, Publisher
from oncemq.common.sharding import Layout
from oncemq.engine.application import Application
from oncemq.engine.plan import AppPlan
from oncemq.ledger import schema
from oncemq.ledger.coordination import shards
from oncemq.ledger.database.engine import make_engine
from oncemq.ledger.messages import outbox, parking
from oncemq.ledger.records import claims
from oncemq.message.envelope import OutgoingMessage
from support.database.shared_database import drop_database
from support.effects import Base, effects, give

SHARDS = 3
KEYS = [f"k{number}" for number in range(12)]
LAYOUT = Layout.even(SHARDS)
ROWS = {"table": "entities", "key": "entity"}
CHAINS: Mapping[str, Sequence[Any]] = {
    "unique_key": ["unique_key"],
    "state_machine": [{"state_machine": {"to": "body.to", "states": ["a", "b", "c"]}}],
    "state_machine-entity": [
        {"state_machine": {"to": "body.to", "states": ["a", "b", "c"], "entity": {**ROWS, "state": "state"}}}
    ],
    "optimistic_lock": [{"optimistic_lock": {"entity": {**ROWS, "version": "version"}}}],
    "sequence": ["sequence"],
    "pessimistic_lock+unique_key": [{"pessimistic_lock": ROWS}, "unique_key"],
    "precondition+unique_key": [
        "unique_key",
        {"precondition": {"entity": ROWS, "where": {"blocked": "body.blocked"}, "required": False}},
    ],
}
"""Every way of knowing what was applied: ledger rows, the user's own rows, locks on them."""
"""How a database is dropped although an engine has idle connections to it."""


@pytest.fixture(params=["sqlite"])
def urls(request: pytest.FixtureRequest, tmp_path: Path, fresh: str) -> Iterator[list[str]]:
    """Three empty databases."""
    if request.param == "sqlite":
        yield [f"sqlite:///{tmp_path}/shard{number}.db" for number in range(SHARDS)]
        return
    server = make_url(request.getfixturevalue(f"{request.param}_url"))
    admin = create_engine(server, isolation_level="AUTOCOMMIT")
    names = [f"{fresh}_{number}" for number in range(SHARDS)]
    with admin.connect() as connection:
        for name in names:
            connection.execute(text(f"CREATE DATABASE {name}"))
        yield [server.set(database=name).render_as_string(hide_password=False) for name in names]
        for name in names:
            drop_database(connection, name)
    admin.dispose()


@pytest.fixture
def engines(urls: list[str]) -> Iterator[list[Engine]]:
    """The shards; each has the tests' tables, and a row for each key that is its own, and no other."""
    with ExitStack() as stack:
        made = [make_engine(url) for url in urls]
        for number, engine in enumerate(made):
            stack.callback(engine.dispose)
            Base.metadata.create_all(engine)
            with engine.begin() as connection:
                connection.execute(
                    text(
                        "CREATE TABLE entities (entity VARCHAR(50) PRIMARY KEY, version INTEGER NOT NULL,"
                        " state VARCHAR(20), blocked INTEGER)"
                    )
                )
                for key in KEYS:
                    if LAYOUT.shard_of(key) == number:
                        row = {"key": key}
                        connection.execute(text("INSERT INTO entities VALUES (:key, 0, NULL, 7)"), row)
        yield made


def orders() -> list[dict[str, Any]]:
    """Return three versions of each key, in order, each of them twice."""
    steps = enumerate("abc", 1)
    return [
        {"id": f"{key}-{version}", "key": key, "version": version, "to": state, "blocked": 7}
        for version, state in steps
        for key in KEYS
        for _ in range(2)
    ]


def app_on(urls: list[str], folder: Path) -> App:
    """Return an app without consumers, whose orders lie in a broker of their own."""
    app = App(
        "shop",
        brokers={"main": f"embedded:///{folder}/broker.db"},
        database={"shards": urls, "by": "key"},
        state=str(folder),
    )
    app.topic("orders", key="body.key", version="body.version")
    return app


def run(plan: AppPlan, bodies: Sequence[Mapping[str, Any]] | None = None) -> None:
    """Create the ledger, publish all orders or these, and run until all is done."""
    for engine in plan.engines:
        schema.create(engine, plan.tables())
    shards.create(plan.engines, plan.name, plan.layout)
    adapter = plan.adapters["main"]
    adapter.prepare([consumer.subscription for consumer in plan.consumers])
    adapter.publish("orders", {}, [OutgoingMessage(json.dumps(body).encode()) for body in bodies or orders()])
    assert Application(plan).run(timedelta(seconds=1)) == 0


def judge(found: Sequence[Sequence[str]]) -> None:
    """Every order took effect once, in its key's order, on its key's shard."""
    wanted = {f"{key}-{version}" for key in KEYS for version in (1, 2, 3)}
    assert Counter(body for shard in found for body in shard) == Counter(wanted)
    for number, shard in enumerate(found):
        assert shard, f"shard {number} has nothing"
        assert {LAYOUT.shard_of(body.partition("-")[0]) for body in shard} == {number}
        for key in KEYS:
            mine = [body for body in shard if body.startswith(f"{key}-")]
            assert mine == sorted(mine)


SERVERS = ("postgresql", "mariadb")
ON_SERVERS = ("unique_key", "optimistic_lock")
EVERYWHERE = ["sqlite", *(pytest.param(server, marks=pytest.mark.server) for server in SERVERS)]


@pytest.mark.parametrize(
    ("urls", "chain"),
    [
        *(("sqlite", chain) for chain in CHAINS),
        *(
            pytest.param(server, chain, marks=pytest.mark.server)
            for server in SERVERS
            for chain in ON_SERVERS
        ),
    ],
    indirect=["urls"],
)
def test_every_strategy_works_on_the_shard_of_its_key(
    urls: list[str], engines: list[Engine], tmp_path: Path, chain: str
) -> None:
    """Ledger rows and the user's own rows are looked for where the key is, and nowhere else."""
    app = app_on(urls, tmp_path)

    @app.consumer(topic="orders", strategies=CHAINS[chain])
    def count(body: dict, session: Session) -> None:
        give(session, body)

    run(app.plan())
    judge([effects(engine) for engine in engines])


@pytest.mark.parametrize("kind", ["def", "async def"])
def test_direct_units_claim_on_the_shard_of_their_key(
    urls: list[str], engines: list[Engine], tmp_path: Path, kind: str
) -> None:
    """Claims are committed where the key is, for handlers in threads and in an event loop."""
    app, done = app_on(urls, tmp_path), list[str]()

    def mail(body: dict) -> None:
        done.append(body["id"])

    async def mail_async(body: dict) -> None:
        done.append(body["id"])

    strategies = [{"two_phase": {"verify": lambda _envelope: Done()}}]
    declare = app.consumer(topic="orders", effects="external", strategies=strategies, name="mail")
    declare(mail if kind == "def" else mail_async)
    run(app.plan())
    assert sorted(done) == sorted({body["id"] for body in orders()})
    for number, engine in enumerate(engines):
        with engine.connect() as connection:
            keys = set(connection.scalars(select(claims.TABLE.c.key)))
        assert keys == {key for key in KEYS if LAYOUT.shard_of(key) == number}


@pytest.mark.parametrize("urls", EVERYWHERE, indirect=True)
def test_what_waits_and_what_is_published_stays_on_its_shard(
    urls: list[str], engines: list[Engine], tmp_path: Path
) -> None:
    """Orders that come from last to first are parked where their key is, and what they publish goes out from there."""
    app = app_on(urls, tmp_path)
    app.topic("shipped", key="body.key", version="body.version")

    @app.consumer(topic="orders", strategies=["sequence"], publishes=["shipped"])
    def ship(body: dict, publisher: Publisher) -> None:
        publisher.publish("shipped", body)

    @app.consumer(topic="shipped", strategies=["unique_key"])
    def count(body: dict, session: Session) -> None:
        give(session, body)

    run(app.plan(), orders()[::-1])
    judge([effects(engine) for engine in engines])
    for engine in engines:
        with engine.connect() as connection:
            assert connection.execute(select(func.count()).select_from(parking.TABLE)).scalar_one() == 0
            assert outbox.depth(connection, "shop").messages == 0


@pytest.mark.parametrize(
    ("urls", "chain"),
    [
        ("sqlite", "state_machine-entity"),
        ("sqlite", "optimistic_lock"),
        pytest.param("postgresql", "state_machine-entity", marks=pytest.mark.server),
        pytest.param("mariadb", "optimistic_lock", marks=pytest.mark.server),
    ],
    indirect=["urls"],
)
def test_early_messages_of_users_rows_wait_on_the_shard_of_their_key(
    urls: list[str], engines: list[Engine], tmp_path: Path, chain: str
) -> None:
    """`early: park` beside the user's own rows: parked and followed up there, in order."""
    app = app_on(urls, tmp_path)
    ((name, options),) = CHAINS[chain][0].items()

    @app.consumer(topic="orders", strategies=[{name: {**options, "early": "park"}}])
    def count(body: dict, session: Session) -> None:
        give(session, body)

    run(app.plan(), orders()[::-1])
    judge([effects(engine) for engine in engines])
    for engine in engines:
        with engine.connect() as connection:
            assert connection.execute(select(func.count()).select_from(parking.TABLE)).scalar_one() == 0
