"""Builds the parts that consumers share: the adapters of the app's brokers and the engine of its database."""

import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import timedelta
from pathlib import Path as Path_
from typing import Any

from sqlalchemy import Engine

from oncemq.common.clock import Clock
from oncemq.common.problems import Problem
from oncemq.config.build.catalog import Catalog
from oncemq.config.build.importing import import_object
from oncemq.config.model.app_model import BROADCAST, AppModel, Broker
from oncemq.config.model.consumer_settings import ConsumerSettings, parse_where
from oncemq.config.model.fields import WrongValue
from oncemq.config.model.process_sections import Redis
from oncemq.config.source.problems import Problems
from oncemq.config.source.schema_files import read_schema, read_schema_folder
from oncemq.config.source.tree import Expanded, Fields, Path, find, key_position
from oncemq.contracts.adapter import Adapter, AdapterScope, Subscription
from oncemq.contracts.broadcast import Broadcast
from oncemq.contracts.broker_queries import NamedMember
from oncemq.engine.supervision.recycling import RecycleRule
from oncemq.errors import ConfigError, OnceMQError
from oncemq.ledger.coordination.broadcast import AT, LedgerPositions
from oncemq.message.signed_history import LEAST_KEY, HistoryKeys
from oncemq.redis.client import RedisClient
from oncemq.redis.connect import CONNECTIONS, TIMEOUT, make_client
from oncemq.redis.tls import TlsFiles
from oncemq.registry import did_you_mean
from oncemq.schemas.registry import Registered, Registry, described, faults

_SHORTEST = timedelta(seconds=1)
_OBJECT = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")


class Reporter:
    """Reports problems at their place in the file.

    Args:
        tree: the source with positions.
        problems: the collection to add to.
    """

    def __init__(self, tree: Fields, problems: Problems) -> None:
        self.tree = tree
        self.problems = problems

    def at(self, path: Path, text: str, advice: str = "") -> None:
        """Report an error at the deepest part of `path` that was written."""
        self.note(path, Problem(text, advice))

    def at_key(self, path: Path, text: str, advice: str = "") -> None:
        """Report an error about the name that ends `path`, not about its value."""
        self.problems.add(key_position(self.tree, path), text, advice)

    def note(self, path: Path, problem: Problem) -> None:
        """Report `problem` at the deepest part of `path` that was written."""
        node, position, reached = find(self.tree, path)
        if reached and isinstance(node, Fields) and not isinstance(reached[-1], int):
            position = key_position(self.tree, reached)
        self.problems.add(position, problem.text, problem.advice, problem.severity)

    def error(self, path: Path, error: Exception) -> None:
        """Report `error`, each of its problems at its place below `path`."""
        if isinstance(error, ConfigError):
            for problem in error.problems:
                self._inner(path, problem)
        else:
            self.at(path, str(error), error.advice if isinstance(error, WrongValue) else "")

    def _inner(self, path: Path, problem: Any) -> None:
        if isinstance(problem, Problem):
            self.note((*path, *parse_where(problem.where)), problem)
        else:
            self.at(path, str(problem))


def written(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options with every `${VAR}` replaced as if its value were written in the file."""
    return {name: _written(value) for name, value in options.items()}


def _written(value: Any) -> Any:
    if isinstance(value, Expanded):
        return value.scalar
    if isinstance(value, Mapping):
        return written(value)
    return [_written(part) for part in value] if isinstance(value, list) else value


def build_registry(model: AppModel, folder: Path_, report: Reporter) -> Registry:
    """Return the registered versions of payload schemas; what cannot be registered is reported."""
    registry = Registry()
    if model.schemas is None:
        for name, topic in model.topics.items():
            if topic.compatibility is not None:
                report.at(
                    ("topics", name, "compatibility"),
                    "the app has no schemas that could be compatible",
                    "add schemas: and the folder of their files",
                )
        return registry
    found = list(_declared_versions(model, folder, report))
    if model.schemas.folder is not None:
        found += read_schema_folder(folder / model.schemas.folder, report.problems)
    for version in found:
        refused = registry.register(version)
        if refused:
            report.at(("schemas",), refused, "remove one of them, or give it the next version")
    return registry


def _declared_versions(model: AppModel, folder: Path_, report: Reporter) -> Iterator[Registered]:
    """Yield the versions below `schemas.versions`."""
    declared = (model.schemas and model.schemas.versions) or {}
    for topic, versions in declared.items():
        if topic not in model.topics:
            known = did_you_mean(topic, list(model.topics))
            report.at_key(("schemas", "versions", topic), f"unknown topic {topic!r}{known}")
        for number, source in versions.items():
            path = ("schemas", "versions", topic, str(number))
            schema = _schema_of(source, path, folder, report)
            if schema is not None:
                yield Registered(topic, number, schema, str(key_position(report.tree, path)))


def _schema_of(source: Any, path: Path, folder: Path_, report: Reporter) -> Any:
    """Return the schema that a version names: a file, a type, or the schema itself; None if it is not usable."""
    try:
        if isinstance(source, str) and _OBJECT.fullmatch(source):
            source = import_object(source, folder)
        if isinstance(source, str):
            return read_schema(folder / source, report.problems)
        schema = dict(source) if isinstance(source, Mapping) else described(source).json_schema()
    except WrongValue as error:
        report.error(path, error)
        return None
    except ValueError as error:
        report.at(path, str(error))
        return None
    wrong = list(faults(schema))
    for text in wrong:
        report.at(path, f"is no usable JSON Schema: {text}")
    return None if wrong else schema


def build_adapters(
    model: AppModel, names: Iterable[str], catalog: Catalog, clock: Clock, report: Reporter
) -> dict[str, Adapter]:
    """Return the adapters of the brokers `names`, by name; those that cannot be built are reported and left out."""
    adapters = {}
    for name in names:
        path: Path = ("brokers", name)
        try:
            adapters[name] = _adapter(model.brokers[name], AdapterScope(model.app, name, clock), catalog)
        except ConfigError as error:
            report.error(path, error)
        except OnceMQError as error:
            report.error((*path, "url"), error)
    return adapters


def build_history_keys(model: AppModel, report: Reporter) -> dict[str, HistoryKeys]:
    """Return the keys of the brokers that have some, by the broker's name; unusable ones are reported."""
    found = {}
    for name, broker in model.brokers.items():
        for option, secret in (
            ("history_key", broker.history_key),
            ("history_key_before", broker.history_key_before),
        ):
            if secret is not None and len(secret.reveal()) < LEAST_KEY:
                report.at(
                    ("brokers", name, option),
                    f"the key has fewer than {LEAST_KEY} characters and could be guessed",
                    "write a longer one, such as the output of `openssl rand -hex 32`",
                )
        before = broker.history_key_before
        if broker.history_key is not None:
            found[name] = HistoryKeys(broker.history_key.reveal(), before.reveal() if before else None)
        elif before is not None:
            report.at(
                ("brokers", name, "history_key_before"),
                "there is no history_key that replaces it",
                "write history_key: too, or leave this out",
            )
    return found


def build_recycle(model: AppModel, adapters: Mapping[str, Adapter], report: Reporter) -> RecycleRule | None:
    """Return when worker processes are replaced; a rule that replaces none, or cannot, is reported."""
    section = model.recycle
    if section is None:
        return None
    if section.after_messages is None and section.above_memory is None and section.every is None:
        report.at(
            ("recycle",), "says no limit", "write after_messages:, above_memory: or every:, or leave it out"
        )
    if section.every is not None and section.every < _SHORTEST:
        report.at(("recycle", "every"), "a process needs longer to start", "write 1s or more, such as 24h")
    for name in dict.fromkeys(topic.broker or next(iter(model.brokers)) for topic in model.topics.values()):
        adapter = adapters.get(name)
        option = adapter.member_name() if isinstance(adapter, NamedMember) else None
        if option is not None:
            report.at(
                ("recycle",),
                f"a successor starts beside the process that it replaces, and both would have the name that {option} "
                f"of broker {name!r} gives: the broker would stop one of them",
                f"leave {option} of broker {name!r} out, or recycle",
            )
    return RecycleRule(section.after_messages, section.above_memory, section.every)


def _adapter(broker: Broker, scope: AdapterScope, catalog: Catalog) -> Adapter:
    options = written(broker.options)
    if broker.username is not None:
        options["username"] = broker.username
    if broker.password is not None:
        options["password"] = broker.password.reveal()
    return catalog.adapters.get(broker.url.scheme).build(broker.url.reveal(), options, scope)


def build_redis(redis: Redis, report: Reporter) -> RedisClient | None:
    """Return the app's Redis client, not yet connected; None if it cannot be created, which is reported."""
    try:
        return make_client(
            redis.url.reveal(),
            username=redis.username,
            password=redis.password.reveal() if redis.password is not None else None,
            timeout=redis.timeout or TIMEOUT,
            connections=redis.connections or CONNECTIONS,
            files=TlsFiles(redis.ca, redis.cert, redis.key),
        )
    except ConfigError as error:
        report.error(("redis",), error)
    except OnceMQError as error:
        report.error(("redis", "url"), error)
    return None


def subscription_of(
    settled: ConsumerSettings, scope: str, engine: Engine | None, clock: Clock
) -> Subscription:
    """Return a consumer's subscription.

    Args:
        settled: its settings.
        scope: its ledger scope.
        engine: the app's database, which keeps how far an instance, or a group, has read.
        clock: the source of time.
    """
    # Topics of one consumer are read independently of each other.
    of_topic = f"{scope}{AT}{settled.topic}" if settled.fans_in else scope
    positions = LedgerPositions(of_topic, engine, clock) if engine is not None else None
    broadcast = None
    if settled.instance and positions is not None:
        broadcast = Broadcast(settled.instance, positions)
    return Subscription(
        settled.name,
        settled.topic,
        settled.group,
        written(settled.options),
        settled.in_flight,
        broadcast=broadcast,
        positions=positions,
    )


def require_instance(model: AppModel, consumers: Iterable[ConsumerSettings], report: Reporter) -> None:
    """Report consumers that are broadcast to, where the app does not say which instance it is, or all would answer."""
    for name, consumer in model.consumers.items():
        if consumer.mode == BROADCAST and model.instance is None:
            report.at(
                ("consumers", name, "mode"),
                f"{name}: mode: broadcast needs a name of this instance, the same after a restart",
                'write instance: "${HOSTNAME}" at the top of the file; in code App(…, instance=…)',
            )
    for settled in consumers:
        if settled.instance and settled.reply:
            report.at(
                settled.path("reply"),
                f"{settled.name}: with mode: broadcast and reply: true each request is answered once for every instance, and its "
                "sender takes one answer",
                "leave one of both out",
            )
