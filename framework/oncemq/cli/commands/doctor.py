"""`oncemq doctor`: prints versions and settings that matter, ready to be pasted into a report of a problem."""

import os
import platform
import re
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import timedelta
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

import click
from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError

from oncemq import __version__
from oncemq.cli.exit_codes import OK
from oncemq.cli.files import app_option
from oncemq.cli.route_lines import route_lines
from oncemq.common.durations import format_duration
from oncemq.common.redaction import escape
from oncemq.config import load
from oncemq.config.build.plan import LoadedApp
from oncemq.contracts.broker_queries import VersionedAdapter
from oncemq.errors import OnceMQError
from oncemq.ledger.sql.column_types import MYSQL_NAMES
from oncemq.redis.probe import server_facts

_REQUIREMENT = re.compile(r"([A-Za-z0-9._-]+)[^;]*(?:;.*extra == ['\"]([^'\"]+)['\"])?")
_ADDRESS = re.compile(r"://[^\s'\"]+")
_UNNAMED = frozenset({"dev", "docs", "bench", "rocketmq-compression"})
"""Extras of development, and a former name."""
_POSTGRESQL = (
    "synchronous_commit",
    "default_transaction_isolation",
    "max_connections",
    "server_encoding",
    "TimeZone",
)
_MYSQL = (
    "innodb_flush_log_at_trx_commit",
    "sync_binlog",
    "tx_isolation",
    "transaction_isolation",
    "max_connections",
)


@click.command(
    epilog="""\b
Examples:
  oncemq doctor
  oncemq -f production.yaml doctor
"""
)
@app_option
def doctor(files: Sequence[Path]) -> int:
    """Print versions, platform, servers and settings, ready to be pasted into a report of a problem.

    Without an app, or with one that has errors, it prints what it can. Passwords and addresses are not printed, and nothing
    is changed.
    """
    for title, lines in (("this machine", _machine()), ("packages", _packages()), ("app", _app(files))):
        click.echo(f"{title}:")
        for line in lines:
            click.echo(f"  {escape(line)}")
    return OK


def _machine() -> Iterator[str]:
    yield f"oncemq {__version__}"
    yield f"{platform.python_implementation()} {platform.python_version()}"
    yield f"{platform.platform()}, {os.cpu_count()} cores"
    yield f"SQLite {sqlite3.sqlite_version}"


def _packages() -> Iterator[str]:
    """Yield each package that OnceMQ can use, with its version or the extras that bring it."""
    missing: dict[str, list[str]] = {}
    shown: set[str] = set()
    for line in requires("oncemq") or ():
        found = _REQUIREMENT.match(line)
        if found is None or found[2] in _UNNAMED or found[1] in {"oncemq", *shown}:
            continue
        try:
            yield f"{found[1]} {version(found[1])}"
            shown.add(found[1])
        except PackageNotFoundError:
            missing.setdefault(f"oncemq[{found[2]}]", []).append(found[1])
    for extra, names in missing.items():
        yield f"not installed: {', '.join(names)} ({extra})"


def _app(files: Sequence[Path]) -> Iterator[str]:
    if not all(file.exists() for file in files):
        yield f"no {files[0]} here: with one, or with -f FILE, its servers and settings are printed, too"
        return
    try:
        loaded = load(files)
    except OnceMQError as error:
        yield "has errors, see `oncemq check`:"
        yield from (f"  {_ADDRESS.sub('://…', line)}" for line in str(error).splitlines())
        return
    yield f"processes {loaded.model.processes}, shards {len(loaded.plan.engines)}"
    yield from _consumers(loaded)
    yield from _brokers(loaded)
    for engine in loaded.plan.engines:
        try:
            yield from _database(engine)
        except SQLAlchemyError as error:
            yield f"database: {engine.dialect.name} with {engine.dialect.driver}, not reached ({type(error).__name__})"
        finally:
            engine.dispose()
    yield from _redis(loaded)


def _consumers(loaded: LoadedApp) -> Iterator[str]:
    for consumer, settled in zip(loaded.plan.consumers, loaded.consumers, strict=True):
        strategies = " + ".join(type(strategy).__name__ for strategy in consumer.strategies)
        keep = "" if consumer.keep is None else f", keep {format_duration(consumer.keep)}"
        yield (
            f"consumer {consumer.name}: {strategies}, effects {consumer.effects}, workers {consumer.workers}, "
            f"attempts {consumer.retry.attempts}{keep}"
        )
        for line in route_lines(settled):
            yield f"  {line}"


def _brokers(loaded: LoadedApp) -> Iterator[str]:
    for name, adapter in loaded.plan.adapters.items():
        kind = type(adapter).__name__
        try:
            adapter.prepare(())
            server = adapter.server_version() if isinstance(adapter, VersionedAdapter) else "version not told"
            yield f"broker {name}: {kind}, {server}"
        except OnceMQError as error:
            yield f"broker {name}: {kind}, not reached ({type(error).__name__})"
        finally:
            adapter.close(grace=timedelta(seconds=1))


def _database(engine: Engine) -> Iterator[str]:
    with engine.connect() as connection:
        dialect = connection.dialect
        name = "mariadb" if getattr(dialect, "is_mariadb", False) else dialect.name
        numbers = ".".join(str(part) for part in dialect.server_version_info or ())
        yield f"database: {name} {numbers} with {dialect.driver}"
        if dialect.name == "postgresql":
            shown = {
                setting: connection.exec_driver_sql(f"SHOW {setting}").scalar() for setting in _POSTGRESQL
            }
        elif dialect.name in MYSQL_NAMES:
            rows = connection.exec_driver_sql("SHOW VARIABLES").all()
            shown = {setting: value for setting, value in rows if setting in _MYSQL}
        else:
            pragmas = ("journal_mode", "synchronous")
            shown = {pragma: connection.exec_driver_sql(f"PRAGMA {pragma}").scalar() for pragma in pragmas}
        yield "  " + ", ".join(f"{setting} {value}" for setting, value in shown.items())


def _redis(loaded: LoadedApp) -> Iterator[str]:
    client = loaded.plan.redis
    if client is None:
        return
    try:
        with suppress(AttributeError):
            for facts in server_facts(client):
                yield f"Redis: {facts}"
    except OnceMQError as error:
        yield f"Redis: not reached ({type(error).__name__})"
    finally:
        client.close()
