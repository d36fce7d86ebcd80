"""Batches in processes that die, stop, or end when nothing arrives: nothing waits for ever, is lost, or takes effect twice."""

import json
import sqlite3
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from time import monotonic

import pytest

from support.apps.program import eventually
from support.apps.warm import WarmProgram

_APP = """
app: shop
brokers: {{main: {{url: "embedded:///{folder}/broker.db"}}}}
database: {{url: "sqlite:///{folder}/shop.db"}}
topics:
  orders: {{key: body.id, identity: body.no, strategies: [unique_key]}}
consumers:
  note:
    topic: orders
    handler: handlers:{handler}
    batch: {{limit: 8, within: {within}, by: body.tenant}}
"""
_HANDLERS = """
import os
import signal
from pathlib import Path

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Session

from oncemq import Batch

INSERT = text("INSERT INTO effects (no, tenant, call) VALUES (:no, :tenant, :call)")


def rows(orders: Batch[dict]) -> list[dict]:
    return [{"no": each["no"], "tenant": each.get("tenant"), "call": orders[0]["no"]} for each in orders]


def die() -> None:
    died = Path(__file__).with_name("died")
    if died.with_name("dies").exists() and not died.exists():
        died.touch()
        os.kill(os.getpid(), signal.SIGKILL)


def note(orders: Batch[dict], session: Session) -> None:
    session.execute(INSERT, rows(orders))
    die()


async def note_async(orders: Batch[dict], session: AsyncSession) -> None:
    await session.execute(INSERT, rows(orders))
    die()
"""
ORDERS = [{"id": str(n % 12), "no": n, **({} if n % 4 == 3 else {"tenant": f"t{n % 4}"})} for n in range(48)]
"""Three tenants, and orders without one."""


class Shop:
    """An app in a folder of its own, with orders that are sent.

    Args:
        folder: its folder.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.program = WarmProgram(folder)

    def prepare(self, handler: str, within: str) -> None:
        """Write the app, and publish all orders and some copies."""
        (self._folder / "app.yaml").write_text(
            _APP.format(folder=self._folder, handler=handler, within=within)
        )
        (self._folder / "handlers.py").write_text(_HANDLERS)
        with sqlite3.connect(self._folder / "shop.db") as connection:
            connection.execute("CREATE TABLE effects (no INTEGER, tenant TEXT, call INTEGER)")
        self.program.succeed("tables", "create")
        # Prepares the group, so that nothing is published before it is there.
        self.program.succeed("run", "--until-idle", "100ms")
        lines = "\n".join(json.dumps(order) for order in [*ORDERS, *ORDERS[::5]])
        done = self.program.call("publish", "orders", "-", stdin=lines)
        assert done.returncode == 0, done.stderr

    def batches(self) -> Mapping[int, list[tuple[int, str]]]:
        """Return number and tenant of what took effect, by the first of each call."""
        found = defaultdict(list)
        with sqlite3.connect(self._folder / "shop.db") as connection:
            for no, tenant, call in connection.execute("SELECT no, tenant, call FROM effects ORDER BY rowid"):
                found[call].append((no, tenant))
        return found


@pytest.mark.parametrize("handler", ["note", "note_async"])
def test_a_death_in_a_batch_loses_and_doubles_nothing(handler: str, tmp_path: Path) -> None:
    """The process is killed with a batch written and not committed; each order takes effect once, with its own tenant's."""
    shop = Shop(tmp_path)
    shop.prepare(handler, "200ms")
    (tmp_path / "dies").touch()
    with shop.program.started("run", "--until-idle", "1s") as running:
        running.wait(60)
    assert (tmp_path / "died").exists()
    shop.program.succeed("run", "--until-idle", "1s")
    batches = shop.batches()
    assert sorted(no for each in batches.values() for no, _ in each) == [order["no"] for order in ORDERS]
    assert all(len({tenant for _, tenant in each}) == 1 for each in batches.values())
    assert max(map(len, batches.values())) > 1


def test_a_run_until_idle_waits_for_no_batch(tmp_path: Path) -> None:
    """Half-full batches run when nothing has arrived for that long, however long they might wait."""
    shop = Shop(tmp_path)
    shop.prepare("note", "60s")
    began = monotonic()
    shop.program.succeed("run", "--until-idle", "500ms", timeout=40)
    assert monotonic() - began < 50
    assert sorted(map(len, shop.batches().values())) == [4, 4, 4, 4, 8, 8, 8, 8]


def test_a_stop_returns_what_waits_for_a_batch(tmp_path: Path) -> None:
    """At once; it runs in the next process."""
    shop = Shop(tmp_path)
    shop.prepare("note", "60s")
    with shop.program.started("run") as running:
        eventually(lambda: len(shop.batches()) == 4, "the full batches", 30, running.said)
        began = monotonic()
        assert running.drain() == 0, running.said()
    assert monotonic() - began < 30
    assert len(shop.batches()) == 4
    shop.program.succeed("run", "--until-idle", "500ms")
    assert sorted(no for each in shop.batches().values() for no, _ in each) == [
        order["no"] for order in ORDERS
    ]
