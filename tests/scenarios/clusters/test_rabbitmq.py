"""A RabbitMQ cluster of three nodes of which one dies, and one is cut off: the app goes on by the others."""

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from oncemq.contracts.adapter import CONFIRMED
from oncemq.errors import BrokerError
from oncemq.message.envelope import OutgoingMessage
from services.servers.rabbitmq import RabbitMQTrio
from support.apps.judged_app import CONSUMER, JudgedApp, fine
from support.apps.program import eventually
from support.brokers.places import Place
from support.servers import own_server

pytestmark = [pytest.mark.slow, pytest.mark.server, pytest.mark.timeout(600)]

IDS = [f"e{number}" for number in range(600)]
UNREADABLE = OutgoingMessage(b"no JSON")


@pytest.fixture(scope="module")
def cluster() -> Iterator[RabbitMQTrio]:
    """Nodes that the tests of this file may hurt."""
    with own_server(RabbitMQTrio) as server:
        yield server
        server.kill()


@pytest.fixture
def app(cluster: RabbitMQTrio, postgresql_database: str, tmp_path: Path, fresh: str) -> JudgedApp:
    """An app that knows all three nodes, on quorum queues."""
    cluster.start()
    url = f"{cluster.url}?hosts={cluster.address(2)},{cluster.address(3)}"
    app = JudgedApp(Place(url, postgresql_database, fresh, tmp_path))

    def declared() -> bool:
        with suppress(BrokerError):
            app.send([])
            return True
        return False

    # A node that is back may refuse new quorum queues for a while.
    eventually(declared, "its queues to be declared", timeout=60)
    return app


def test_a_killed_node_costs_nothing(cluster: RabbitMQTrio, app: JudgedApp) -> None:
    """The one that all are connected to: publishing, consuming and retries go on by another node, each effect once."""
    _go_on_without_a_node(app, lambda: cluster.kill_only("node-1"), cluster.start)


def test_a_dead_letter_is_kept_while_the_node_of_its_queue_is_away(
    cluster: RabbitMQTrio, app: JudgedApp
) -> None:
    """A queue of dead letters lies on one node: without that the app starts and works, and the ledger keeps the letter."""
    app.publish(IDS[:20])
    cluster.kill_only("node-1")
    with app.program.started("run") as running:
        eventually(
            lambda: app.send([UNREADABLE]) == [CONFIRMED], "its confirmation by a new leader", timeout=60
        )
        app.publish(IDS[20:40])
        eventually(app.all_applied, "every event to be applied", timeout=90, said=running.said)
        assert "queue of dead letters is away" in running.said()
        eventually(
            lambda: "message dead-lettered" in running.said(),
            "the dead letter",
            timeout=90,
            said=running.said,
        )
        assert running.drain() == 0, running.said()
    cluster.start()
    # More than one where a confirmation was lost.
    letters = app.program.succeed("dead-letters", "list", CONSUMER, "--json").splitlines()
    assert all(json.loads(letter)["reason"].startswith("undecodable") for letter in letters), letters
    assert letters
    assert app.judge() == fine()


# Last: RabbitMQ 3.10 may refuse new quorum queues for a while when a frozen node is back.
def test_a_frozen_node_costs_nothing(cluster: RabbitMQTrio, app: JudgedApp) -> None:
    """It neither answers nor ends its connections until the others give it up."""
    _go_on_without_a_node(app, lambda: cluster.pause("node-1"), cluster.resume)


def _go_on_without_a_node(app: JudgedApp, hurt: Callable[[], None], heal: Callable[[], None]) -> None:
    app.publish(IDS[:300])
    with app.program.started("run") as running:
        eventually(lambda: len(app.effects()) >= 50, "50 effects", timeout=90, said=running.said)
        hurt()
        try:
            app.publish(IDS[300:])
            eventually(app.all_applied, "every event to be applied", timeout=120, said=running.said)
        finally:
            heal()
        assert running.drain() == 0, running.said()
    assert app.judge() == fine()
    assert app.dead_letters() == []
