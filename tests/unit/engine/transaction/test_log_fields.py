"""A line about a unit carries the fields of none of its messages."""

import io
import json
from datetime import timedelta
from pathlib import Path

import pytest
import structlog

from oncemq import App
from oncemq.engine.transaction.item_loop import Call
from oncemq.ledger import schema
from oncemq.ledger.database.engine import make_engine
from oncemq.observe.logs import configure
from unit.observe.test_logs import restored


def test_lines_after_a_handler_are_not_about_its_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A line of the handler has its message's key; one of what follows it in the unit has none."""
    url = f"sqlite:///{tmp_path}/shop.db"
    engine = make_engine(url)
    schema.create(engine)
    engine.dispose()
    app = App(
        "shop",
        brokers={"main": f"embedded:///{tmp_path}/broker.db"},
        database=url,
        logging={"configure": False},
    )
    app.topic("orders", key="body.id", identity="key", strategies=["unique_key"])
    log = structlog.get_logger("oncemq")

    @app.consumer(topic="orders")
    def pay(body: dict) -> None:
        log.warning("in the handler", number=body["id"])

    over = Call.over

    def logging_over(call: Call) -> None:
        log.warning("after the handler")
        over(call)

    monkeypatch.setattr(Call, "over", logging_over)
    stream = io.StringIO()
    with restored():
        configure("info", "json", stream=stream)
        app.run(until_idle=timedelta(milliseconds=100))
        with app.publisher() as publisher:
            publisher.publish("orders", {"id": "a"})
        app.run(until_idle=timedelta(milliseconds=300))
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    keys = {line["event"]: line.get("key") for line in lines}
    assert keys["in the handler"] == "a"
    assert keys["after the handler"] is None
