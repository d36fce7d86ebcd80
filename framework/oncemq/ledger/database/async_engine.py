"""Makes the async twin of an app's engine: the same database through a driver for event loops, for async handlers.

The ledger's statements of a unit run on the handler's connection, inside `greenlet_spawn`; so one code serves both engines.
"""

from importlib.util import find_spec
from typing import Any, Final

from sqlalchemy import URL, AsyncAdaptedQueuePool, Engine
from sqlalchemy.exc import InvalidRequestError

from oncemq.errors import MissingExtra
from oncemq.ledger.database.connect import set_up
from oncemq.ledger.database.engine import is_memory, secrets_of
from oncemq.ledger.database.server_clock import share_clock
from oncemq.ledger.sql.column_types import MYSQL_NAMES

_CONNECT_SECONDS: Final = 5
_UNKNOWN_TO_ASYNCMY: Final = ("ssl_disabled",)
"""Parameters of PyMySQL: asyncmy uses TLS only when asked for."""


def async_driver(engine: Engine) -> str:
    """Return the name of the driver that async handlers on this database use.

    Raises:
        MissingExtra: it is not installed, or the database cannot be opened twice.
    """
    if find_spec("greenlet") is None:
        raise MissingExtra(f"{_NEEDS} the package 'greenlet', which is not installed: {_ADVICE}")
    name = engine.dialect.name
    if name == "sqlite" and is_memory(engine.url):
        raise MissingExtra(
            "an async handler has a connection of its own, and an in-memory SQLite database has only one: "
            "write sqlite:///file.db"
        )
    driver = "psycopg" if name == "postgresql" else "asyncmy" if name in MYSQL_NAMES else "aiosqlite"
    if find_spec(driver) is None:
        raise MissingExtra(f"{_NEEDS} the package {driver!r}, which is not installed: {_ADVICE}")
    return driver


def make_async_twin(engine: Engine, pool_size: int) -> Engine:
    """Return an engine on the same database whose statements are sent inside `greenlet_spawn` only; not yet connected.

    Args:
        engine: made by `make_engine`.
        pool_size: connections kept open; as many more may be opened while these are in use.

    Raises:
        MissingExtra: as `async_driver`.
    """
    # Needs an optional package.
    from sqlalchemy.ext.asyncio import create_async_engine  # noqa: PLC0415

    url = engine.url.set(drivername=f"{engine.url.get_backend_name()}+{async_driver(engine)}")
    try:
        twin = create_async_engine(
            url.difference_update_query(_UNKNOWN_TO_ASYNCMY),
            hide_parameters=True,
            poolclass=AsyncAdaptedQueuePool,
            pool_size=pool_size,
            max_overflow=pool_size,
            **_arguments(url, secrets_of(engine)),
        ).sync_engine
    except InvalidRequestError as error:
        raise MissingExtra(f"{_NEEDS} another driver: {error}") from None
    set_up(twin)
    share_clock(engine, twin)
    return twin


_NEEDS: Final = "async handlers with effects: database need"
_ADVICE: Final = "pip install 'oncemq[async]', or write def instead of async def"


def _arguments(url: URL, secrets: dict[str, Any]) -> dict[str, Any]:
    if url.get_backend_name() == "sqlite":
        return {}
    keep_alive = {"keepalives_idle": 5, "keepalives_interval": 5, "keepalives_count": 2}
    connect = {"connect_timeout": _CONNECT_SECONDS, **(keep_alive if "psycopg" in url.drivername else {})}
    unsaid = {name: value for name, value in connect.items() if name not in url.query}
    return {
        "isolation_level": "READ COMMITTED",
        "pool_recycle": 1800,
        "connect_args": {**unsaid, **secrets},
    }
