"""Engine of an app's database, with the settings that the rules require."""

from typing import Any

from sqlalchemy import URL, Engine, QueuePool, create_engine, event, exc, make_url

from oncemq.common.problems import Problem
from oncemq.common.redaction import is_secret_name
from oncemq.errors import ConfigError, MissingExtra
from oncemq.ledger.database.connect import SILENCE_SECONDS, set_up
from oncemq.ledger.database.probe import prove, startup_warnings
from oncemq.ledger.database.transaction_pooling import drop_connection

__all__ = ["make_engine", "prove", "startup_warnings"]

USUAL_CONNECTIONS = 10
"""Enough for the app's own tasks and a few workers."""

_CONNECT_SECONDS = 5
_DRIVERS = {"postgresql": "psycopg", "mysql": "pymysql", "mariadb": "pymysql", "sqlite": "pysqlite"}
_SECRETS = "oncemq_secrets"
"""Attribute of an engine's dialect, which belongs to that engine alone."""
_EXTRAS = {"psycopg": "postgres", "pymysql": "mysql"}


def make_engine(
    url: str, *, username: str | None = None, password: str | None = None, pool_size: int = USUAL_CONNECTIONS
) -> Engine:
    """Return an engine with the settings that the rules require; it does not connect yet.

    Args:
        url: `postgresql://…`, `mysql://…`, `mariadb://…` or `sqlite:///file`, with or without a driver's name.
        username: used instead of the URL's.
        password: used instead of the URL's.
        pool_size: connections kept open; as many more may be opened while these are in use.

    Raises:
        ConfigError: the URL cannot be parsed or names an unsupported database.
        MissingExtra: the driver is not installed.
    """
    parsed, kept_back = _without_secrets(_with_driver(_parsed(url)))
    if username is not None:
        parsed = parsed.set(username=username)
    if password is not None:
        parsed = parsed.set(password=password)
    try:
        _refuse_async(parsed)
        _refuse_untested(parsed)
        engine = create_engine(parsed, hide_parameters=True, **_arguments(parsed, pool_size, kept_back))
    except ModuleNotFoundError as error:
        extra = _EXTRAS.get(parsed.get_driver_name())
        advice = (
            f"pip install 'oncemq[{extra}]'"
            if extra
            else f"install that, or write {parsed.get_backend_name()}://… for the driver that OnceMQ brings"
        )
        raise MissingExtra(
            f"the database {parsed.render_as_string()} needs the package {error.name!r}, which is not installed: "
            f"{advice}"
        ) from None
    except exc.ArgumentError as error:
        raise ConfigError(
            [Problem(f"{parsed.render_as_string()} cannot be used: {error}", where="database.url")]
        ) from None
    setattr(engine.dialect, _SECRETS, kept_back)
    set_up(engine)
    if engine.dialect.name == "postgresql":
        event.listen(engine, "handle_error", drop_connection)
    return engine


def secrets_of(engine: Engine) -> dict[str, Any]:
    """Return the secret parameters of an engine's URL, which the URL no longer has."""
    return dict(getattr(engine.dialect, _SECRETS, {}))


def _parsed(url: str) -> URL:
    try:
        parsed = make_url(url)
    except (exc.ArgumentError, ValueError):
        # The text is not repeated: a URL that cannot be parsed may hold a password anywhere.
        problem = Problem(
            "the URL cannot be understood",
            "write it like postgresql://localhost/shop or sqlite:///shop.db",
            "database.url",
        )
        raise ConfigError([problem]) from None
    if not parsed.host and "@" in (parsed.database or "") and parsed.get_backend_name() != "sqlite":
        # Else the password would be read as part of the database's name, which is not secret.
        problem = Problem(
            "the URL has a user, but no host",
            "write two slashes before the user: …://user@host/name",
            "database.url",
        )
        raise ConfigError([problem])
    if parsed.get_backend_name() not in _DRIVERS:
        raise ConfigError(
            [
                Problem(
                    f"{parsed.get_backend_name()!r} is not a supported database",
                    "use postgresql://, mysql://, mariadb:// or sqlite:///",
                    "database.url",
                )
            ]
        )
    return parsed


def _with_driver(url: URL) -> URL:
    if "+" in url.drivername:
        return url
    return url.set(drivername=f"{url.drivername}+{_DRIVERS[url.drivername]}")


def _refuse_async(url: URL) -> None:
    if url.get_dialect().is_async:
        text = f"{url.drivername}:// is a driver for event loops; transactions run in threads"
        advice = f"write {url.get_backend_name()}://… for the driver that OnceMQ brings"
        raise ConfigError([Problem(text, advice, "database.url")])


def _refuse_untested(url: URL) -> None:
    """Refuse a driver of MySQL whose errors and results are unknown here: it would connect, and then fail at every message."""
    backend, driver = url.get_backend_name(), url.get_driver_name()
    if backend in {"mysql", "mariadb"} and driver != _DRIVERS[backend]:
        text = f"{url.drivername}:// is a driver that OnceMQ is not tested with"
        raise ConfigError([Problem(text, f"write {backend}+{_DRIVERS[backend]}://host/name", "database.url")])


def _without_secrets(url: URL) -> tuple[URL, dict[str, Any]]:
    """Move secret parameters out of the URL: SQLAlchemy hides its password, but shows its parameters."""
    names = [name for name in url.query if is_secret_name(name)]
    return url.difference_update_query(names), {name: url.query[name] for name in names}


def is_memory(url: URL) -> bool:
    """Return whether a URL of SQLite names a database in memory."""
    return url.database in {None, "", ":memory:"}


def _arguments(url: URL, pool_size: int, kept_back: dict[str, Any]) -> dict[str, Any]:
    backend = url.get_backend_name()
    if backend == "sqlite":
        # One connection is the whole in-memory database: a second connection would see another, empty database.
        size = {"pool_size": 1, "max_overflow": 0} if is_memory(url) else _sizes(pool_size)
        return {"poolclass": QueuePool, "connect_args": {"check_same_thread": False}, **size}
    arguments = {"isolation_level": "READ COMMITTED", "pool_recycle": 1800, **_sizes(pool_size)}
    connect: dict[str, Any] = {}
    if url.get_driver_name() == "psycopg":
        connect = {
            "connect_timeout": _CONNECT_SECONDS,
            "keepalives_idle": 5,
            "keepalives_interval": 5,
            "keepalives_count": 2,
            "tcp_user_timeout": SILENCE_SECONDS * 1000,
        }
    elif url.get_driver_name() == "pymysql":
        # Without read_timeout, which ends after the login, a server that accepts and says nothing is waited for without limit.
        connect = {
            "connect_timeout": _CONNECT_SECONDS,
            "read_timeout": _CONNECT_SECONDS,
            "charset": "utf8mb4",
        }
    unsaid = {name: value for name, value in connect.items() if name not in url.query}
    return {**arguments, "connect_args": {**unsaid, **kept_back}}


def _sizes(pool_size: int) -> dict[str, int]:
    # Connections beyond the pool size are opened and closed for each transaction.
    return {"pool_size": pool_size, "max_overflow": pool_size}
