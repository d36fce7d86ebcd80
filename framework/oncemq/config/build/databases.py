"""Builds the engines of the app's database, one or one per shard, and the mapping of keys to shards."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import timedelta
from math import ceil
from typing import Final

from sqlalchemy import Engine, make_url
from sqlalchemy.exc import ArgumentError, NoSuchModuleError

from oncemq.common.durations import format_duration
from oncemq.common.sharding import Layout
from oncemq.config.build.shared_parts import Reporter
from oncemq.config.model.app_model import AppModel, Database
from oncemq.config.model.consumer_settings import ConsumerSettings
from oncemq.config.model.fields import Url
from oncemq.config.source.tree import Path
from oncemq.engine.plan import ConsumerPlan
from oncemq.errors import OnceMQError
from oncemq.ledger.database.engine import USUAL_CONNECTIONS, make_engine
from oncemq.registry import extra_for

_DATABASE: Path = ("database",)

_OWN_TASKS = 5
"""Connections for tasks outside of workers: maintenance, the outbox, heartbeats."""
_BRIEFLY = 8
"""Connections for all workers of a consumer whose handlers run outside of a transaction."""


def database_urls(database: Database | None) -> list[Url]:
    """Return the database's URL, or those of all shards."""
    if database is None:
        return []
    return list(database.shards or []) if database.url is None else [database.url]


def whole_urls(database: Database) -> list[str]:
    """Return the same as text, with user name and password."""
    password = database.password.reveal() if database.password is not None else None
    return [
        # None leaves what the URL says.
        make_url(url.reveal())
        .set(username=database.username, password=password)
        .render_as_string(hide_password=False)
        for url in database_urls(database)
    ]


def build_layout(database: Database | None, report: Reporter) -> Layout | None:
    """Return the mapping of keys to shards; None without shards. Its problems are reported."""
    if database is None:
        return None
    shards = database.shards
    if (database.url is None) == (shards is None):
        text = "says neither url nor shards" if shards is None else "says both url and shards"
        report.at(
            _DATABASE, f"`database` {text}", 'write url: "sqlite:///app.db", or a list of URLs as shards:'
        )
        return None
    if shards is None:
        for name, value in (("by", database.by), ("slots", database.slots)):
            if value is not None:
                report.at_key((*_DATABASE, name), f"`{name}` is about shards", "write shards:, or remove it")
        return None
    if not shards:
        report.at((*_DATABASE, "shards"), "`shards` is empty", "write a URL for each shard")
        return None
    return _layout(database, len(shards), report)


def build_generations(
    model: AppModel, engine: Engine | None, consumers: Sequence[ConsumerSettings], report: Reporter
) -> timedelta | None:
    """Return how long a generation of the ledger is open; None without. What cannot be sound is reported.

    A test may run the app on another database than it declares: its records are in one table there.
    """
    every = model.ledger.generations if model.ledger is not None else None
    if every is None:
        return None
    path: Path = ("ledger", "generations")
    urls = database_urls(model.database)
    dialect = urls[0].scheme.partition("+")[0] if urls else ""
    if dialect != "postgresql":
        report.at(
            path,
            f"generations need PostgreSQL, and {_NO_GENERATIONS.get(dialect, 'the app has no database')}",
            "remove `ledger`: the records stay in one table, and are purged row by row",
        )
    if every < _SHORTEST_GENERATION:
        report.at(path, f"{format_duration(every)} is too short for a generation", "write 1h, 1d or the like")
        return None
    for settled in consumers:
        if every > settled.keep or settled.keep / every > _MOST_GENERATIONS:
            least = settled.keep / _MOST_GENERATIONS
            unit = timedelta(hours=1) if least > timedelta(hours=1) else _SHORTEST_GENERATION
            report.at(
                path,
                f"consumer {settled.name} keeps its records for {format_duration(settled.keep)}, which does not go with "
                f"generations of {format_duration(every)}: every message is looked up in each generation",
                f"write a duration from {format_duration(ceil(least / unit) * unit)} to {format_duration(settled.keep)}",
            )
    return None if engine is not None and engine.dialect.name != "postgresql" else every


def with_generations(plan: ConsumerPlan, every: timedelta | None) -> ConsumerPlan:
    """Return the consumer with this length of its generations, if it keeps records of identities."""
    # Each instance of a broadcast would need tables of its own.
    if every is None or plan.subscription.broadcast is not None:
        return plan
    if not any(strategy.records_identity for strategy in plan.strategies_on(0)):
        return plan
    return replace(plan, generations=every)


_SHORTEST_GENERATION: Final = timedelta(minutes=1)
_MOST_GENERATIONS: Final = 31
_NO_GENERATIONS: Final = {
    "mysql": "MySQL ends a transaction at each change of tables",
    "mariadb": "MariaDB ends a transaction at each change of tables",
    "sqlite": "SQLite has one writer, which a rotation would stop",
}


def _layout(database: Database, shards: int, report: Reporter) -> Layout | None:
    urls = [url.reveal() for url in database.shards or []]
    for number, url in enumerate(urls):
        if url in urls[:number]:
            report.at(
                (*_DATABASE, "shards", number), "this shard is in the list twice", "give each its own URL"
            )
    if database.slots is None:
        return Layout.even(shards)
    path = (*_DATABASE, "slots")
    if len(database.slots) != shards:
        report.at(
            path, f"`slots` has {len(database.slots)} entries for {shards} shards", "write one for each shard"
        )
        return None
    try:
        return Layout.of(database.slots)
    except ValueError as error:
        report.at(path, f"`slots`: {error}")
    return None


def connections_for(consumers: Iterable[ConsumerSettings]) -> int:
    """Return the maximum of connections to one database in use at once, with every worker busy."""
    needed = (
        consumer.workers if consumer.transactional else min(consumer.workers, _BRIEFLY)
        for consumer in consumers
    )
    return max(USUAL_CONNECTIONS, _OWN_TASKS + sum(needed))


def build_engines(database: Database | None, report: Reporter, connections: int) -> list[Engine]:
    """Return an engine for each shard, or the only one; not yet connected. Empty if one cannot be created: reported.

    Args:
        database: as declared.
        report: receives problems.
        connections: pool size for each database, unless declared.
    """
    if database is None:
        return []
    engines: list[Engine] = []
    for number, url in enumerate(database_urls(database)):
        path: Path = (*_DATABASE, "url") if database.shards is None else (*_DATABASE, "shards", number)
        engine = _engine(database, url, path, report, database.pool_size or connections)
        if engine is None:
            return []
        if engines and engine.dialect.name != engines[0].dialect.name:
            report.at(
                path,
                "shards are databases of one kind",
                f"write a URL of {engines[0].dialect.name}, like the first",
            )
        engines.append(engine)
    return engines


def _engine(database: Database, url: Url, path: Path, report: Reporter, connections: int) -> Engine | None:
    try:
        return make_engine(
            url.reveal(),
            username=database.username,
            password=database.password.reveal() if database.password is not None else None,
            pool_size=connections,
        )
    except OnceMQError as error:
        report.error(path, error)
    except NoSuchModuleError:
        report.at(path, f"unknown database {url.scheme!r}", _URL_FORMS)
    except (ArgumentError, ValueError):
        report.at(path, f"{url} is not a database URL", _URL_FORMS)
    except ModuleNotFoundError as error:
        module = error.name or ""
        report.at(
            path, f"the package {module!r} is not installed", f"pip install 'oncemq[{extra_for(module)}]'"
        )
    return None


_URL_FORMS = "write postgresql+psycopg://host/name, mysql+pymysql://host/name or sqlite:///file.db"
