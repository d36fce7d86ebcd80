"""A Galera cluster of three nodes that all take writes: copies on several nodes, a lost majority, what is risky."""

import itertools
import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Any

import pytest
from sqlalchemy import Engine, event, make_url, text, update
from sqlalchemy.orm import Session

from oncemq.errors import InfrastructureError
from oncemq.ledger import schema
from oncemq.ledger.database.engine import make_engine
from oncemq.ledger.database.probe import prove, startup_warnings
from oncemq.ledger.database.side_by_side import examine
from oncemq.testing.scripted import ScriptedAdapter
from oncemq_strategies.unique_key.strategy import UniqueKey
from services.servers.galera import NODES, Galera
from support.apps.program import eventually
from support.effects import Base, Shared, effects, empty, give, points
from support.engine import make_app, make_consumer, running
from support.heard import Heard
from support.servers import own_server
from support.units import build

pytestmark = pytest.mark.server
MESSAGES = 150
MUCH = text("INSERT INTO effects (order_id, `key`, attempt) SELECT seq, 'k', 1 FROM seq_1_to_20000")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Galera]:
    """Three nodes, each a copy of the others."""
    with own_server(Galera) as server:
        yield server


@pytest.fixture
def nodes(cluster: Galera, fresh: str) -> Iterator[Sequence[Engine]]:
    """An engine for each node, on one new database."""
    system = make_url(cluster.url)
    administrator = make_engine(cluster.url)
    with administrator.begin() as connection:
        connection.execute(text(f"CREATE DATABASE {fresh}"))
    administrator.dispose()
    ports = [int(cluster.address(number).rpartition(":")[2]) for number in range(1, NODES + 1)]
    engines = [
        make_engine(system.set(database=fresh, port=port).render_as_string(hide_password=False))
        for port in ports
    ]
    Base.metadata.create_all(engines[0])
    empty(engines[0])
    yield engines
    for engine in engines:
        engine.dispose()


def handler(order: dict[str, Any], session: Session) -> None:
    """Leave one effect, and add to a row that all messages change."""
    give(session, order)
    session.execute(update(Shared).where(Shared.id == 1).values(points=Shared.points + 1))


def order(number: int) -> bytes:
    """Return the body of a message."""
    return json.dumps({"id": str(number), "key": f"k{number % 20}"}).encode()


def test_copies_on_several_nodes_take_effect_once(nodes: Sequence[Engine]) -> None:
    """Each node's consumer gets all messages at once; what the nodes' check of commits refuses is run again, uncharged."""
    adapters = [ScriptedAdapter() for _ in nodes]
    with ExitStack() as apps:
        for adapter, engine in zip(adapters, nodes, strict=True):
            strategies = [build(UniqueKey, engine, "points")]
            apps.enter_context(
                running(make_app(adapter, engine, make_consumer(handler, strategies, workers=2)))
            )
        for number in range(MESSAGES):
            for adapter in adapters:
                adapter.deliver(order(number))
        for adapter in adapters:
            adapter.wait_until(lambda seen: len(seen.acknowledged) == MESSAGES, 60)
    assert [(adapter.retried, adapter.dead) for adapter in adapters] == [([], [])] * NODES
    for engine in nodes:
        assert sorted(effects(engine)) == sorted(map(str, range(MESSAGES)))
        assert points(engine) == MESSAGES


def test_a_commit_on_one_node_is_seen_on_the_next(nodes: Sequence[Engine]) -> None:
    """At once, also where that node has much to do before: no verdict comes from rows that were changed elsewhere."""
    writer, reader, _ = nodes
    for number in range(1, 6):
        with writer.begin() as connection:
            connection.execute(MUCH)
            connection.execute(update(Shared).values(points=number))
        assert points(reader) == number


def test_a_node_without_the_majority_is_an_outage(cluster: Galera, nodes: Sequence[Engine]) -> None:
    """The node that is left refuses its work: the consumer pauses, no message is charged, and it resumes by itself."""
    adapter, heard = ScriptedAdapter(), Heard()
    engine = nodes[0]
    plan = make_app(adapter, engine, make_consumer(handler, [build(UniqueKey, engine, "points")], workers=2))
    with running(plan, observers=[heard]):
        adapter.deliver(order(0))
        adapter.wait_until(lambda seen: len(seen.acknowledged) == 1, 30)
        cluster.pause("node-2", "node-3")
        try:
            for number in range(1, MESSAGES):
                adapter.deliver(order(number))
            eventually(lambda: heard.of("consumer_paused"), "the consumer is paused", 60)
        finally:
            cluster.resume()
        adapter.wait_until(lambda seen: len(seen.acknowledged) == MESSAGES, 90)
    assert (adapter.retried, adapter.dead) == ([], [])
    assert sorted(effects(engine)) == sorted(map(str, range(MESSAGES)))


def test_the_start_says_that_the_majority_is_away(cluster: Galera, nodes: Sequence[Engine]) -> None:
    """And not that no server answers at the address."""
    cluster.pause("node-2", "node-3")
    try:
        said: list[str] = []

        def refused() -> bool:
            said[:] = [_start_error(nodes[0])]
            return "lost the majority of its Galera cluster" in said[0]

        eventually(refused, "the node's own words", 60, said=lambda: str(said))
    finally:
        cluster.resume()
    eventually(lambda: _start_error(nodes[0]) == "", "the cluster is whole again", 60)


def _start_error(engine: Engine) -> str:
    engine.dispose()
    try:
        prove(engine)
    except InfrastructureError as error:
        return str(error)
    return ""


def test_an_address_of_several_nodes_is_a_risk(nodes: Sequence[Engine]) -> None:
    """A balancer that spreads connections over the nodes is found by two of them; one node's address is none."""
    first, second, _ = nodes
    schema.create(first, [])
    assert examine(first, schema.VERSIONS) == []
    both = make_engine(first.url.render_as_string(hide_password=False))
    ports = itertools.cycle([first.url.port, second.url.port])

    @event.listens_for(both, "do_connect")
    def spread(_dialect: Any, _record: Any, _arguments: Any, named: dict[str, Any]) -> None:
        named["port"] = next(ports)

    (risk,) = examine(both, schema.VERSIONS)
    both.dispose()
    assert "several nodes of a Galera cluster (node-1, node-2)" in risk


def test_a_table_without_a_primary_key_is_a_risk(nodes: Sequence[Engine]) -> None:
    """Galera replicates its rows, but not that they are deleted."""
    with nodes[0].begin() as connection:
        connection.execute(text("CREATE TABLE notes (text VARCHAR(20))"))
    (risk,) = [each for each in startup_warnings(nodes[1]) if "Galera" in each]
    assert risk.startswith("table notes has no primary key")
