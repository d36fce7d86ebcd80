"""Broker or database die while messages are under way: the app resumes by itself, and no message pays for it."""

from pathlib import Path

import pytest

from support.apps.judged_app import CONSUMER, JudgedApp, fine
from support.apps.program import Started, eventually
from support.brokers.places import Place
from support.brokers.quorum import wait_until_named
from support.servers import OwnServer

pytestmark = [pytest.mark.slow, pytest.mark.server, pytest.mark.timeout(300)]

IDS = [f"e{number}" for number in range(800)]


def wait_for_effects(app: JudgedApp, count: int, running: Started) -> None:
    """Wait until so many effects are committed."""
    eventually(lambda: len(app.effects()) >= count, f"{count} effects", timeout=90, said=running.said)


def test_a_broker_killed_and_started_again_costs_nothing(
    own_rabbitmq: OwnServer, postgresql_database: str, tmp_path: Path, fresh: str
) -> None:
    """After the broker's restart the rest is applied, everything once, at its first attempt."""
    server = own_rabbitmq()
    app = JudgedApp(Place(server.url, postgresql_database, fresh, tmp_path))
    app.publish(IDS)
    wait_until_named(server, app.place.queue(CONSUMER))
    with app.program.started("run") as running:
        wait_for_effects(app, 200, running)
        server.kill()
        before = len(app.effects())
        server.start()
        eventually(app.all_applied, "every event to be applied", timeout=90, said=running.said)
        assert running.drain() == 0, running.said()
    assert before < len(IDS), "all was done before the broker died"
    assert app.judge() == fine()
    assert app.dead_letters() == []
    assert app.place.unsettled(CONSUMER) == 0


def test_a_database_killed_and_started_again_costs_nothing(
    rabbitmq_url: str, own_postgresql: OwnServer, tmp_path: Path, fresh: str
) -> None:
    """After the database's restart the rest is applied, everything once, at its first attempt."""
    server = own_postgresql()
    place = Place(rabbitmq_url, server.url, fresh, tmp_path)
    app = JudgedApp(place)
    try:
        app.publish(IDS)
        with app.program.started("run") as running:
            wait_for_effects(app, 200, running)
            server.kill()
            eventually(lambda: "consumer paused" in running.said(), "a word about it", said=running.said)
            server.start()
            before = len(app.effects())
            eventually(app.all_applied, "every event to be applied", timeout=90, said=running.said)
            assert running.drain() == 0, running.said()
        assert before < len(IDS), "all was done before the database died"
        assert app.judge() == fine()
        assert app.dead_letters() == []
        assert place.unsettled(CONSUMER) == 0
        assert "consumer resumed" in running.said()
    finally:
        place.clear()
