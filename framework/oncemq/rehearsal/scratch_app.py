"""Builds the new configuration for a rehearsal: its strategies are real, everything that touches the outside is replaced."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from sqlalchemy import Engine

from oncemq.common.clock import Clock
from oncemq.config.build.catalog import Catalog
from oncemq.config.build.plan import LoadedApp, Substitutes, build_app
from oncemq.config.build.shared_parts import written
from oncemq.config.load import read_app
from oncemq.config.model.app_model import AppModel, Database, Topic
from oncemq.config.model.consumer_settings import ConsumerSettings, settle
from oncemq.config.model.shared_sections import Retry
from oncemq.config.model.strategy_list import StrategyChoice
from oncemq.contracts.checks import Effects
from oncemq.errors import ConfigError
from oncemq.registry import did_you_mean
from oncemq.testing.kit.memory_broker import MemoryAdapter

_LOCKS: Final = frozenset({"redis_lock", "pessimistic_lock"})
_EXTERNAL: Final = frozenset({"redis_flag", "two_phase"})


def nothing(payload: Any) -> None:
    """Take the place of the app's handler."""


@dataclass
class NewApp:
    """The new configuration, as it is rehearsed.

    Attributes:
        model: with nothing that touches the outside.
        declared: the model as declared.
        settled: the consumer's settings as they are rehearsed.
        name: the consumer.
        strategies: as declared, by name.
        build: builds it on scratch engines.
        left_out: what is not rehearsed, in words.
    """

    model: AppModel
    declared: AppModel
    settled: ConsumerSettings
    name: str
    strategies: list[tuple[str, Mapping[str, Any]]]
    build: Callable[[Clock, Callable[[Sequence[str]], Sequence[Engine]]], LoadedApp]
    left_out: list[str] = field(default_factory=list)


def new_app(files: Sequence[Path], consumer: str | None, topic: str, recorded: str) -> NewApp:
    """Return the app of `files` for a rehearsal; imports none of the user's handlers, opens no connection.

    Args:
        files: the app's, in order.
        consumer: its consumer; None = the one that was recorded.
        topic: of the recording.
        recorded: the consumer of the recording.

    Raises:
        ConfigError: it cannot be rehearsed; carries every reason.
    """
    tree, declared, problems = read_app(files)
    name = _name(declared, consumer, topic, recorded)
    chosen = declared.consumers[name]
    if chosen.topic is None:
        raise ConfigError(
            [f"{name} has several topics, and a recording is of one: rehearse it with topic: instead"]
        )
    if chosen.topic not in declared.topics:
        known = list(declared.topics)
        raise ConfigError([f"{name}: unknown topic {chosen.topic!r}{did_you_mean(chosen.topic, known)}"])
    broker = declared.topics[chosen.topic].broker or next(iter(declared.brokers))
    as_declared = settle(name, chosen, chosen.topic, broker, declared)
    if any(_differs(route, as_declared) for route in as_declared.by_route.values()):
        raise ConfigError(
            [f"{name}: routes with strategies, a key or an identity of their own cannot be rehearsed"]
        )
    left_out: list[str] = []
    chain, identity = _rehearsable(as_declared, left_out)
    changes: dict[str, Any] = {"handler": nothing, "routes": None, "accepts": None, "middlewares": None}
    changes |= {"strategies": chain, "effects": Effects.DATABASE.value, "publishes": None, "schema_": None}
    changes |= {"workers": 1} | ({"identity": identity} if identity is not None else {})
    own = _plain(chosen).model_copy(update=changes)
    if chosen.routes is not None:
        left_out.append("routes: which handler a message gets, and whether it has one")
    if chosen.accepts is not None:
        left_out.append("accepts: versions of payloads, and upcasters")
    model = declared.model_copy(
        update={
            "brokers": {broker: declared.brokers[broker]},
            "topics": {each: _bare(found, broker) for each, found in declared.topics.items()},
            "consumers": {name: own},
            "defaults": _plain(declared.defaults) if declared.defaults is not None else None,
            "database": Database.model_validate({"url": "sqlite://"}),
            "redis": None,
            "middlewares": None,
            "schemas": None,
            "http": None,
            "logging": None,
            "tracing": None,
            "ledger": None,
            "recycle": None,
            "state": None,
        }
    )
    settled = settle(name, own, chosen.topic, broker, model)

    def build(clock: Clock, engines: Callable[[Sequence[str]], Sequence[Engine]]) -> LoadedApp:
        catalog = Catalog(adapters={declared.brokers[broker].url.scheme: MemoryAdapter})
        return build_app(
            model, tree, problems, files[0].parent, catalog, Substitutes(clock, engines, catalog)
        )

    left_out.append("handlers: each message has from its handler what it had when it was recorded")
    return NewApp(
        model,
        declared,
        settled,
        name,
        [(each.name, written(each.options)) for each in as_declared.strategies],
        build,
        left_out,
    )


def _differs(route: ConsumerSettings, settled: ConsumerSettings) -> bool:
    """Return whether a route's messages are read or decided about in another way."""
    return (route.strategies, route.key, route.version, route.identity) != (
        settled.strategies,
        settled.key,
        settled.version,
        settled.identity,
    )


def _name(model: AppModel, wanted: str | None, topic: str, recorded: str) -> str:
    names = list(model.consumers)
    if wanted is not None:
        if wanted not in names:
            raise ConfigError([f"unknown consumer {wanted!r}{did_you_mean(wanted, names)}"])
        return wanted
    if recorded in names:
        return recorded
    found = [
        name
        for name, each in model.consumers.items()
        if recorded in (each.formerly or ()) or (each.topic == topic and len(names) == 1)
    ]
    if len(found) == 1:
        return found[0]
    raise ConfigError(
        [f"the app has no consumer {recorded!r}, which was recorded: say which one --consumer {names}"]
    )


def _plain(options: Any) -> Any:
    """Return the options of a consumer without what calls the user's code, or limits its speed."""
    retry: Retry | None = options.retry
    if retry is not None:
        retry = retry.model_copy(update={"never": None, "errors": None})
        retry.__pydantic_extra__ = {}
    return options.model_copy(
        update={
            "on_dead": None,
            "asked_delay": None,
            "breakers": None,
            "rate": None,
            "concurrency": None,
            "batch": None if options.batch is None else options.batch.model_copy(update={"within": None}),
            "retry": retry,
            "limits": None,
        }
    )


def _bare(topic: Topic, broker: str) -> Topic:
    """Return a topic without options of its broker."""
    found = topic.model_copy(
        update={"broker": broker, "schema_": None, "compatibility": None, "claim_check": None}
    )
    found.__pydantic_extra__ = {}
    return found


def _rehearsable(
    settled: ConsumerSettings, left_out: list[str]
) -> tuple[tuple[StrategyChoice, ...], tuple[str, ...] | None]:
    """Return the chain as it can be rehearsed, and another identity if a table's columns are it; notes what is left out."""
    chain: list[StrategyChoice] = []
    identity: tuple[str, ...] | None = None
    for choice in settled.strategies:
        options = written(choice.options)
        if choice.name in _LOCKS:
            left_out.append(f"{choice.name}: it decides nothing, and has no rivals in a rehearsal")
        elif choice.name == "precondition":
            left_out.append("precondition: it reads columns of yours, whose values are not in a recording")
        elif choice.name in _EXTERNAL:
            left_out.append(f"{choice.name}: rehearsed as unique_key, which finds the same duplicates")
            chain.append(StrategyChoice("unique_key"))
        elif choice.name == "tiered":
            left_out.append("tiered: its caches, which decide nothing alone; rehearsed by its unique key")
            kept = {name: value for name, value in options.items() if name in ("fingerprint", "result")}
            chain.append(StrategyChoice("unique_key", kept))
        elif choice.name == "unique_key" and "columns" in options:
            left_out.append(
                f"unique_key: your table {options.get('table')!r}; rehearsed by a record of the same columns"
            )
            chain.append(StrategyChoice("unique_key"))
            identity = tuple(str(value) for value in dict(options["columns"]).values())
        else:
            if options.pop("also_seen_in", None) is not None:
                left_out.append("unique_key: also_seen_in, whose records are not in a recording")
            chain.append(StrategyChoice(choice.name, options))
    if not chain:
        names = ", ".join(choice.name for choice in settled.strategies) or "it has none"
        raise ConfigError([f"{settled.name}: none of its strategies can be rehearsed: {names}"])
    return tuple(chain), identity
