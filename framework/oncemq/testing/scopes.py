"""Scopes for building a strategy in a test, without an app."""

from datetime import timedelta

from sqlalchemy import Engine, MetaData

from oncemq.common.clock import Clock, SystemClock
from oncemq.contracts.strategy import Scope
from oncemq.message.expressions import compile_expression
from oncemq.redis import RedisClient


def scope_for(
    consumer: str,
    engine: Engine | None = None,
    *,
    dialect: str = "",
    clock: Clock | None = None,
    redis: RedisClient | None = None,
) -> Scope:
    """Return the scope of a consumer that keeps records for seven days.

    Args:
        consumer: `app.consumer`.
        engine: the app's database; None without one.
        dialect: of the database, where there is none.
        clock: the system's own unless given.
        redis: the app's Redis; None without one.
    """
    return Scope(
        app=consumer.partition(".")[0],
        consumer=consumer,
        dialect=engine.dialect.name if engine is not None else dialect,
        engine=engine,
        metadata=MetaData(),
        clock=clock or SystemClock(),
        keep=timedelta(days=7),
        expression=compile_expression,
        import_object=lambda name: name,
        redis=redis,
    )
