"""What operators read while messages fail, come twice and processes are killed is what the database and the broker have."""

import asyncio
import json
import os
import re
import signal
import socket
from collections.abc import Callable, Iterator
from typing import Any
from urllib.request import urlopen

import httpx
import pytest
from sqlalchemy import Engine, create_engine, text

from oncemq.dashboard import create_app
from support.apps.program import eventually
from support.apps.warm import WarmProgram
from support.brokers.places import POSTGRESQL, Place, make_place

pytestmark = [pytest.mark.server, pytest.mark.slow, pytest.mark.timeout(180)]

_APP = """
app: {name}
brokers: {{main: {{url: "${{BROKER}}"}}}}
database: {{url: "${{DATABASE}}"}}
http: {{address: "127.0.0.1:{port}"}}
topics:
  {name}: {{key: body.order, identity: body.id, version: body.number, strategies: [unique_key, sequence]}}
consumers:
  judge: {{topic: {name}, handler: "handlers:judge", retry: {{attempts: 2, backoff: {{first: 100ms}}}}}}
"""
_HANDLERS = '''
from time import sleep

from oncemq import Reject
from sqlalchemy.orm import Session


def judge(event: dict, session: Session) -> None:
    """Let some fail."""
    sleep(0.001)
    if event["fails"]:
        raise Reject("this one fails")
'''
_APPLIED = text("SELECT count(*) FROM oncemq_processed WHERE consumer = :scope")
_PARKED_ONCE = text("SELECT count(DISTINCT identity) FROM oncemq_parked WHERE consumer = :scope")
_PARKED = text("SELECT count(*) FROM oncemq_parked WHERE consumer = :scope")


@pytest.fixture
def place(request: pytest.FixtureRequest, tmp_path, fresh: str) -> Iterator[Place]:
    """Where the app runs."""
    yield from make_place(POSTGRESQL, request, tmp_path, fresh)


def _events() -> list[dict[str, Any]]:
    """Return 1,000 events of 40 orders; every tenth order misses one event, and the last of others fails."""
    events = []
    for number in range(1000):
        order, step = number % 40, number // 40 + 1
        if order % 10 == 9 and step == 15:
            continue  # what follows of this order is parked
        fails = order % 10 == 3 and step == 25
        events.append({"id": f"{order}-{step}", "order": f"o{order}", "number": step, "fails": fails})
    return events


def _counted(engine: Engine, statement: Any, scope: str) -> int:
    with engine.connect() as connection:
        return int(connection.scalar(statement, {"scope": scope}) or 0)


def _ask(app: Any, path: str) -> httpx.Response:
    async def answer() -> httpx.Response:
        transport = httpx.ASGITransport(app, client=("127.0.0.1", 50_000))
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8088") as client:
            return await client.get(path)

    return asyncio.run(answer())


def _metric(port: int, name: str) -> float:
    with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        found = re.search(rf"^{name}{{[^}}]*}} ([0-9.e+]+)$", answer.read().decode(), re.MULTILINE)
    return float(found[1]) if found else -1.0


def test_all_surfaces_say_what_is_true_in_a_storm(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between what the database had before and after the question, in each moment; and at the end all say the same."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    (place.folder / "app.yaml").write_text(_APP.format(name=place.name, port=port))
    (place.folder / "handlers.py").write_text(_HANDLERS)
    program = WarmProgram(place.folder, place.environment)
    program.succeed("tables", "create")
    events = _events()
    lines = "".join(json.dumps(event) + "\n" for event in [*events, *events[::5]])
    engine, scope = create_engine(place.database), f"{place.name}.judge"
    for name, value in place.environment.items():
        monkeypatch.setenv(name, value)
    app = create_app(place.folder / "app.yaml")

    def overview() -> dict[str, Any]:
        app.state.site.forget_overview()
        found: dict[str, Any] = _ask(app, "/api/overview").json()
        return found

    def sandwiched(statement: Any, name: Callable[[dict[str, Any]], int]) -> dict[str, Any]:
        before = _counted(engine, statement, scope)
        found = overview()
        after = _counted(engine, statement, scope)
        assert min(before, after) <= name(found["consumers"][0]) <= max(before, after), found
        return found

    def applied(row: dict[str, Any]) -> int:
        return int(row["outcomes"].get("applied", 0))

    killed: set[int] = set()
    with program.started("run", "--processes", "2") as running:
        assert program.call("publish", place.name, stdin=lines).returncode == 0

        def done() -> bool:
            found = sandwiched(_APPLIED, applied)
            alive = [process["pid"] for process in found["processes"] if process["alive"]]
            if (
                applied(found["consumers"][0]) > 150 * (1 + len(killed))
                and len(killed) < 2
                and len(alive) > 1
            ):
                pid = next(pid for pid in alive if pid not in killed)
                killed.add(pid)
                os.kill(pid, signal.SIGKILL)
            return len(killed) == 2 and place.unsettled("judge") == 0 and applied(found["consumers"][0]) > 800

        eventually(done, "all events are settled or parked", 90, running.said)
        last: dict[str, Any] = {}

        def agreed() -> bool:
            nonlocal last
            app = create_app(place.folder / "app.yaml")  # it counts dead letters every half minute
            (row,) = _ask(app, "/api/overview").json()["consumers"]
            (listed,) = json.loads(program.call("status", "--json").stdout)["consumers"]
            (top,) = json.loads(program.call("top", "--once", "--json").stdout)["consumers"]
            letters = len(program.succeed("dead-letters", "list", "judge", "--json").splitlines())
            page = _ask(app, "/").text
            app.state.site.close()
            last = {
                "dead": [row["dead_letters"], listed["dead_letters"], top["dead_letters"], letters,
                         int(_metric(port, "oncemq_dead_letter_messages"))],
                "parked": [row["parked"], listed["parked"], top["parked"], _counted(engine, _PARKED, scope),
                           int(_metric(port, "oncemq_parked_messages"))],
                "page": f">{row['dead_letters']}<" in page,
            }  # fmt: skip
            return (
                all(len(set(last[name])) == 1 and last[name][0] > 0 for name in ("dead", "parked"))
                and last["page"]
            )

        eventually(agreed, "all say the same", 60, lambda: f"{last}\n{running.said()}")
        assert last["dead"][0] >= 4
        # A copy of a parked message is parked, too, until its turn.
        assert _counted(engine, _PARKED_ONCE, scope) == 4 * 10
        assert running.drain() == 0, running.said()
    app.state.site.close()
    engine.dispose()
