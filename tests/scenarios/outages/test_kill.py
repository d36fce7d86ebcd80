"""Worker processes die in the middle of units: nothing is lost, nothing counts twice, no one else pays."""

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pika
import pytest

from oncemq.message import headers
from support.apps.judged_app import CONSUMER, JudgedApp, fine
from support.apps.program import eventually
from support.brokers.places import EMBEDDED, MARIADB, POSTGRESQL, Place, make_place

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

KILLS = 5
IDS = [f"e{number}" for number in range(600)]


@pytest.fixture(
    params=[
        EMBEDDED,
        pytest.param(POSTGRESQL, marks=pytest.mark.server),
        pytest.param(MARIADB, marks=pytest.mark.server),
    ]
)
def place(request: pytest.FixtureRequest, tmp_path: Path, fresh: str) -> Iterator[Place]:
    """Each pair of broker and database."""
    yield from make_place(request.param, request, tmp_path, fresh)


def kill_in_the_middle(app: JudgedApp, killed: set[int], progress: int, said: Callable[[], str]) -> None:
    """SIGKILL the worker whose handler began last, once `progress` handlers have begun."""

    def reached() -> bool:
        tried = app.tried()
        return len(tried) >= progress and tried[-1][0] not in killed

    eventually(reached, f"{progress} handlers to have begun, the last in a worker that lives", said=said)
    process = app.tried()[-1][0]
    os.kill(process, signal.SIGKILL)
    killed.add(process)


def test_workers_killed_in_the_middle_of_units_lose_and_double_nothing(place: Place) -> None:
    """After five SIGKILLs every confirmed event has one effect, and nothing is left in the broker."""
    app, killed = JudgedApp(place), set[int]()
    app.publish(IDS)
    with app.program.started("run", "--processes", "2") as running:
        for _ in range(KILLS):
            kill_in_the_middle(app, killed, len(app.tried()) + 60, running.said)
        eventually(app.all_applied, "every event to be applied", said=running.said)
        assert running.drain() == 0, running.said()
    effects = {(process, identity) for identity, _, process in app.effects()}
    torn = {
        process
        for process, identity in app.tried()
        if process in killed and (process, identity) not in effects
    }
    assert app.judge() == fine()
    assert app.dead_letters() == []
    assert place.unsettled(CONSUMER) == 0
    assert torn, "no kill hit a unit that was under way"


@pytest.fixture
def stream_place(request: pytest.FixtureRequest, tmp_path: Path, fresh: str) -> Iterator[Place]:
    """A place with a stream that is called as it is."""
    url = pika.URLParameters(request.getfixturevalue("rabbitmq_url"))
    with pika.BlockingConnection(url) as connection:
        connection.channel().queue_declare(fresh, durable=True, arguments={"x-queue-type": "stream"})
    yield from make_place(POSTGRESQL, request, tmp_path, fresh)
    with pika.BlockingConnection(url) as connection:
        connection.channel().queue_delete(fresh)


@pytest.mark.server
def test_the_reader_of_a_stream_is_killed(stream_place: Place) -> None:
    """Another process reads on where the ledger says; what the dead one had not settled is read again, and nothing counts twice."""
    app, killed = JudgedApp(stream_place, attempts=2, stream=stream_place.name), set[int]()
    app.publish(IDS[:200], deadly=["e70"])
    with app.program.started("run", "--processes", "2") as running:
        kill_in_the_middle(app, killed, 40, running.said)
        eventually(
            lambda: app.all_applied(but=["e70"]) and app.dead_letters(),
            "every event to be applied, and a dead letter",
            said=running.said,
        )
        assert running.drain() == 0, running.said()
    assert app.judge().lost == {"e70"}
    assert (app.judge().double, app.judge().invented) == (frozenset(), frozenset())
    (letter,) = app.dead_letters()
    assert letter.message.headers[headers.REASON] == "crashed"


def test_a_message_that_kills_its_process_ends_as_one_dead_letter(place: Place) -> None:
    """Its neighbours are applied once; it is tried as often as configured, then dead-lettered as `crashed`."""
    app = JudgedApp(place, attempts=3)
    app.publish(IDS[:150], twice=0.0, deadly=["e70"])
    with app.program.started("run", "--processes", "2") as running:
        eventually(
            lambda: app.all_applied(but=["e70"]) and app.dead_letters(),
            "the neighbours' effects and a dead letter",
            said=running.said,
        )
        assert running.drain() == 0, running.said()
    assert app.judge().lost == {"e70"}
    assert app.judge().double == frozenset()
    assert [identity for _, identity in app.tried()].count("e70") == 3
    (letter,) = app.dead_letters()
    assert letter.message.headers[headers.REASON] == "crashed"
    assert letter.message.headers[headers.ATTEMPT] == "3"
    assert b'"e70"' in letter.message.body
    assert place.unsettled(CONSUMER) == 0
