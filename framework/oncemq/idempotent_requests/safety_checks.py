"""Checks that a ledger of requests and its rules are safe; unsafe ones are refused at construction."""

import os
from datetime import timedelta
from threading import Event
from typing import Final

from sqlalchemy import Engine

from oncemq.common.durations import format_duration
from oncemq.common.problems import Problem
from oncemq.errors import ConfigError
from oncemq.idempotent_requests.housekeeping import LOG
from oncemq.ledger.sql.tables import CONSUMER_SIZE

SWITCH: Final = "ONCEMQ_IDEMPOTENCY"
"""Environment variable that switches decorated functions off, for unit tests."""
_NONE = timedelta(0)
_told: Final = Event()


def switched_off() -> bool:
    """Return whether decorated functions run without a ledger.

    Raises:
        ConfigError: the variable is neither `on` nor `off`.
    """
    value = os.environ.get(SWITCH, "on").strip().lower()
    if value in {"", "on"}:
        return False
    if value != "off":
        raise ConfigError([Problem(f"{SWITCH}={value!r} is not known", "write on or off, or unset it")])
    if not _told.is_set():
        _told.set()
        LOG.warning("idempotent calls run unprotected: ONCEMQ_IDEMPOTENCY is off")
    return True


def plain_engine(engine: Engine) -> Engine:
    """Return the app's own engine, if threads can use it.

    Raises:
        ConfigError: it is an AsyncEngine, or the sync engine of one.
    """
    if isinstance(engine, Engine) and not engine.dialect.is_async:
        return engine
    text = "a ledger of requests works in threads, also beside an event loop, and needs a plain engine"
    advice = (
        "give it the database's URL, such as postgresql://…, or an engine made by sqlalchemy.create_engine"
    )
    raise ConfigError([Problem(text, advice)])


def check_ledger(engine: Engine, name: str, keep: timedelta, lease: timedelta) -> None:
    """Refuse settings that would protect nothing.

    Raises:
        ConfigError: contains every problem.
    """
    problems = []
    if not name or len(name.encode()) > CONSUMER_SIZE:
        problems.append(Problem("a ledger of requests needs a name of at most 255 bytes", "name the app"))
    if lease <= _NONE or keep <= _NONE:
        problems.append(Problem("`keep` and `lease` must be longer than zero"))
    elif keep <= lease:
        text = f"keep {format_duration(keep)} is not longer than the lease {format_duration(lease)}"
        problems.append(Problem(text, "a request could be forgotten while it runs: raise `keep`"))
    problems += _engine_problems(engine)
    if problems:
        raise ConfigError(problems)


def _engine_problems(engine: Engine) -> list[Problem]:
    if engine.dialect.name == "sqlite" and engine.url.database in {None, "", ":memory:"}:
        return [Problem("a database in memory forgets every request when the process ends", "name a file")]
    options = engine.get_execution_options()
    isolation = options.get("isolation_level") or getattr(engine.dialect, "_on_connect_isolation_level", None)
    if str(isolation).upper() == "AUTOCOMMIT":
        text = "the engine commits every statement by itself, so that an effect and its record can part"
        return [
            Problem(text, 'leave out isolation_level="AUTOCOMMIT", or give this ledger an engine of its own')
        ]
    return []
