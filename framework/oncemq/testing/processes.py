"""Separate processes for tests, as clean as spawned ones and ready in milliseconds."""

import multiprocessing
from multiprocessing.context import ForkServerContext

_IMPORTED = (
    "pytest",
    "sqlalchemy.orm",
    "sqlalchemy.dialects.postgresql.psycopg",
    "sqlalchemy.dialects.mysql.pymysql",
    "sqlalchemy.dialects.sqlite.pysqlite",
    "psycopg",
    "pymysql",
    "redis",
    "oncemq.testing.strategy_suite",
    "oncemq_strategies.sequence.strategy",
    "oncemq_strategies.state_machine.strategy",
    "oncemq_strategies.tiered.strategy",
    "oncemq_strategies.redis_lock.strategy",
    "oncemq_strategies.claims.two_phase",
    "oncemq_strategies.unique_key.strategy",
)
"""Modules to import in advance; missing ones are skipped."""


def processes() -> ForkServerContext:
    """Return a context that starts processes by forking a server with many imports and no threads.

    They see the environment variables that were set when the first of them was started.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(_IMPORTED))
    return context
