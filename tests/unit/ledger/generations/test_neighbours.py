"""Records in generations beside other strategies, consumers and messages of one unit, through the whole engine on a server."""

from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.orm import Session

from oncemq import App
from oncemq.ledger.generations import rotation
from oncemq.testing import TestApp
from oncemq.testing.kit.outcomes import Status
from suites.kit.conftest import FAILED, Base, adds, effects, fails_once


def _reads(body: dict[str, Any], session: Session) -> None:
    session.execute(text("SELECT count(*) FROM oncemq_generations"))
    adds(body, session)


@pytest.mark.server
@pytest.mark.parametrize("handler", [adds, fails_once, _reads])
def test_each_message_of_a_unit_takes_effect_once_over_rotations(postgresql_url: str, handler: Any) -> None:
    """Two consumers, copies in one unit and after a rotation between two, and neighbours that fail or read."""
    FAILED.clear()
    app = App(
        "kit",
        brokers={"main": "amqp://nowhere/"},
        database="postgresql+psycopg://nowhere/x",
        ledger={"generations": "1d"},
    )
    app.topic("orders", key="body.id", identity=["body.id"], strategies=["unique_key"])
    app.consumer(topic="orders", name="first")(handler)
    app.consumer(topic="orders", name="second")(adds)
    with TestApp(app, tables=Base.metadata, database=postgresql_url) as kit:
        for day in range(3):
            ids = [f"{day} {number}" for number in range(10)]
            kit.publish_many("orders", [{"id": each} for each in [*ids, *ids[:5]]])
            kit.clock.advance("5m")
            assert rotation.rotate(kit.engine(), "kit.first", timedelta(0))
            outcomes = kit.publish_many("orders", [{"id": each} for each in ids])
            assert all(
                each.of(name).status is Status.DUPLICATE for each in outcomes for name in ("first", "second")
            )
        assert sorted(effects(kit)) == sorted(
            2 * [f"{day} {number}" for day in range(3) for number in range(10)]
        )
