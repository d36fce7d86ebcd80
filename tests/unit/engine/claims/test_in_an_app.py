"""Large bodies in a store, in running apps."""

from pathlib import Path
from threading import Event
from typing import Any

import pytest

from oncemq import App
from oncemq.message.claims.store import MARKER
from oncemq.testing import TestApp

pytest.importorskip("fsspec")

LARGE = {"id": "a", "text": "x" * 5000}


def shop(folder: Path, **options: Any) -> tuple[App, list[Any]]:
    """Return an app with a store, and what its handler got."""
    (folder / "bodies").mkdir(exist_ok=True)
    app = App("shop", brokers={"main": f"embedded:///{folder}/b.db"}, database=f"sqlite:///{folder}/s.db")
    store = {"store": f"file://{folder}/bodies", "over": "1KiB"}
    app.topic("orders", key="body.id", strategies=["unique_key"], claim_check=store)
    got: list[Any] = []

    @app.consumer(topic="orders", name="pay", **options)
    def pay(order: dict[str, Any]) -> None:
        got.append(order)

    return app, got


def bodies(folder: Path) -> list[Path]:
    """Return the files of bodies."""
    return sorted(each for each in (folder / "bodies").rglob("*") if each.is_file() and each.name != MARKER)


def test_a_large_body_lies_in_the_store_and_arrives_whole(tmp_path: Path) -> None:
    """The message refers to it; a small body stays in its message."""
    app, got = shop(tmp_path)
    with TestApp(app) as kit:
        assert kit.publish("orders", LARGE).applied
        assert kit.publish("orders", {"id": "b"}).applied
    assert got == [LARGE, {"id": "b"}]
    assert len(bodies(tmp_path)) == 1
