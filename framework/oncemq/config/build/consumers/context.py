"""Shared inputs for building all consumers of an app."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import Engine, MetaData

from oncemq.common.clock import Clock
from oncemq.config.build.catalog import Catalog
from oncemq.config.build.reading.body_checks import TopicBodies
from oncemq.config.build.shared_parts import Reporter
from oncemq.contracts.adapter import Adapter
from oncemq.handler.middlewares import Middleware
from oncemq.message.claims.claim_check import ClaimCheck
from oncemq.message.signed_history import HistoryKeys
from oncemq.redis.client import RedisClient
from oncemq.schemas.registry import Registry

if TYPE_CHECKING:
    from oncemq.observe.otel.tracing import Tracing


@dataclass(frozen=True, slots=True)
class BuildContext:
    """Shared inputs for building all consumers of an app.

    Args:
        app: the app's name.
        folder: the folder of the app's file.
        adapters: by broker name; without those that could not be built.
        engine: the app's database; None if there is none, or it could not be created.
        dialect: the database's dialect name; empty without a database.
        metadata: shared by all strategies.
        redis: the app's Redis; None if there is none, or it could not be created.
        more_shards: engine and metadata of every shard but the first.
        clock: the source of time.
        catalog: the available strategies.
        report: receives problems.
        row_values: whether errors may show row values.
        history_keys: by broker name.
        tracing: makes spans; None without.
        schemes: of the brokers' URLs, by broker name.
        middlewares: of the app; around those of a consumer.
        registry: the registered versions of payload schemas.
        bodies: what checks bodies against the version that they name, by topic.
        generations: records of applied messages are in generations.
        claims: where large bodies lie, by topic.
    """

    app: str
    folder: Path
    adapters: Mapping[str, Adapter]
    engine: Engine | None
    dialect: str
    metadata: MetaData
    redis: RedisClient | None
    more_shards: tuple[tuple[Engine, MetaData], ...]
    clock: Clock
    catalog: Catalog
    report: Reporter
    row_values: bool = False
    history_keys: Mapping[str, HistoryKeys] = field(default_factory=dict)
    tracing: "Tracing | None" = None
    schemes: Mapping[str, str] = field(default_factory=dict)
    middlewares: tuple[Middleware, ...] = ()
    registry: Registry = field(default_factory=Registry)
    bodies: Mapping[str, TopicBodies] = field(default_factory=dict)
    generations: bool = False
    claims: Mapping[str, ClaimCheck] = field(default_factory=dict)
