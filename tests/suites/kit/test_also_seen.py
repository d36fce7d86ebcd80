"""`unique_key: {also_seen_in: …}` in whole apps: neighbours, other consumers, ordinary handlers, and a table that goes."""

from contextlib import closing
from typing import Any

import pytest
from sqlalchemy import Column, Engine, MetaData, String, Table, insert, text
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Session

from oncemq import App, ConfigError
from oncemq.redis.connect import make_client
from oncemq.testing import TestApp
from oncemq.testing.kit.outcomes import Status
from suites.kit.conftest import FAILED, Base, Effect, adds, effects, fails_once
from support.servers import OwnServer

DEDUP = Table("t_dedup", MetaData(), Column("message_key", String(40), primary_key=True))
IN_REDIS = {"unique_key": {"also_seen_in": {"redis_key": "dedup:{body.id}", "value": "CONSUMED"}}}
ALSO = {"unique_key": {"also_seen_in": {"table": "t_dedup", "columns": {"message_key": "body.id"}}}}


def _tables(engine: Engine) -> None:
    """Create what the app's handlers and the other deduplicator write, with rows of the latter."""
    Base.metadata.create_all(engine)
    DEDUP.create(engine, checkfirst=True)
    with engine.begin() as connection:
        connection.execute(insert(DEDUP), [{"message_key": "old"}, {"message_key": "older"}])


def _reads_and_mixes(body: dict[str, Any], session: Session) -> None:
    session.execute(text("SELECT count(*) FROM t_dedup"))
    session.execute(text("UPDATE effects SET text = text"))
    adds(body, session)


async def _adds_in_a_loop(body: dict[str, Any], session: AsyncSession) -> None:
    session.add(Effect(text=body["id"]))


def _app(
    handler: Any, *, strategy: dict[str, Any] = ALSO, redis: str = "redis://nowhere:1/0", **more: Any
) -> App:
    app = App(
        "kit",
        brokers={"main": "amqp://nowhere/"},
        database="postgresql+psycopg://nowhere/x",
        redis=redis if strategy is IN_REDIS else None,
    )
    app.topic("orders", key="body.id", identity=["body.id"])
    app.consumer(topic="orders", name="moved", strategies=[strategy], **more)(handler)
    app.consumer(topic="orders", name="other", strategies=["unique_key"])(adds)
    return app


@pytest.mark.server
@pytest.mark.parametrize("server", ["postgresql", "mariadb"])
@pytest.mark.parametrize("handler", [adds, _reads_and_mixes, fails_once])
def test_neighbours_and_other_consumers_notice_nothing(
    request: pytest.FixtureRequest, server: str, handler: Any
) -> None:
    """In one unit: what was seen elsewhere, copies of it, new messages, and one that fails once."""
    FAILED.clear()
    url = request.getfixturevalue(f"{server}_url")
    with TestApp(_app(handler), tables=_tables, database=url) as kit:
        sent = ["old", "new", "old", "newer", "older", "new"]
        outcomes = kit.publish_many("orders", [{"id": each} for each in sent])
        kit.clock.advance("5m")
        ended = [(name, outcome.of("moved").status) for name, outcome in zip(sent, outcomes, strict=True)]
        assert sorted(name for name, status in ended if status is Status.APPLIED) == ["new", "newer"]
        assert {status for _, status in ended} == {Status.APPLIED, Status.DUPLICATE}
        assert sorted(effects(kit)) == ["new", "new", "newer", "newer", "old", "older"]


def test_a_table_that_goes_makes_no_dead_letter(postgresql_url: str) -> None:
    """It may be dropped while the option is still there: the consumer pauses, and goes on when it is back."""
    app = _app(adds, retry={"attempts": 2})
    with TestApp(app, tables=_tables, database=postgresql_url) as kit:
        DEDUP.drop(kit.engine())
        outcomes = kit.publish_many("orders", [{"id": f"{number}"} for number in range(5)])
        kit.clock.advance("10m")
        assert kit.dead_letters() == []
        DEDUP.create(kit.engine())
        kit.clock.advance("10m")
        assert {outcome.of("moved").status for outcome in outcomes} == {Status.APPLIED}


@pytest.mark.parametrize("handler", [adds, _adds_in_a_loop])
def test_an_outage_of_redis_makes_no_double_effect_and_no_dead_letter(
    handler: Any, postgresql_url: str, own_redis: OwnServer
) -> None:
    """The consumer pauses, and goes on when Redis is back; another consumer of the topic notices nothing."""
    server = own_redis()

    def marked(*ids: str) -> None:
        with closing(make_client(server.url)) as client:
            for each in ids:
                client.command("SET", f"dedup:{each}", "CONSUMED", key=f"dedup:{each}")

    marked("old")
    app = _app(handler, strategy=IN_REDIS, redis=server.url, retry={"attempts": 2})
    with TestApp(app, tables=_tables, database=postgresql_url) as kit:
        before = kit.publish_many("orders", [{"id": each} for each in ("old", "new")])
        assert [outcome.of("moved").status for outcome in before] == [Status.DUPLICATE, Status.APPLIED]
        server.kill()
        during = kit.publish_many("orders", [{"id": each} for each in ("older", "newer", "new")])
        kit.clock.advance("10m")
        assert [outcome.of("other").status for outcome in during] == [
            Status.APPLIED,
            Status.APPLIED,
            Status.DUPLICATE,
        ]
        assert kit.dead_letters() == []
        server.start()
        marked("older")
        kit.clock.advance("10m")
        assert [outcome.of("moved").status for outcome in during] == [
            Status.DUPLICATE,
            Status.APPLIED,
            Status.DUPLICATE,
        ]
        assert sorted(effects(kit)) == ["new", "new", "newer", "newer", "old", "older"]


@pytest.mark.parametrize("strategy", [ALSO, IN_REDIS])
def test_on_dead_does_not_go_with_it(strategy: dict[str, Any]) -> None:
    """It would undo what the other deduplicator has applied, if a copy fails before it is looked up."""
    app = _app(adds, strategy=strategy, on_dead=adds)
    with pytest.raises(ConfigError, match="could undo what also_seen_in knows as applied"):
        app.load()
