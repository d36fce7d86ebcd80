"""An app with one consumer, in the working directory: orders are paid for, unless they are bad."""

from pathlib import Path

import pytest

from oncemq import App

APP = """
app: shop
brokers: {main: {url: "embedded:///broker.db"}}
database: {url: "%s"}
topics: {orders: {key: body.id, strategies: [unique_key]}}
consumers: {pay: {topic: orders, handler: "handlers:pay"}}
"""

HANDLERS = """
from oncemq import Reject

def pay(order: dict) -> None:
    if order.get("bad"):
        raise Reject("unpaid")
"""


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, database_url: str) -> App:
    """An app with its tables in the working directory."""
    (tmp_path / "app.yaml").write_text(APP % database_url)
    (tmp_path / "handlers.py").write_text(HANDLERS)
    monkeypatch.chdir(tmp_path)
    app = App.from_yaml()
    app.create_tables()
    return app
