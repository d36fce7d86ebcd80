"""App declared in Python: the same model, checks and plan as from YAML, for scripts and tests."""

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any, Self, TypeVar, Unpack

from sqlalchemy import Connection, Engine
from sqlalchemy.orm import Session

from oncemq.app_options import ConsumerOptions, Strategies, TopicOptions
from oncemq.app_process import run_loaded
from oncemq.app_routes import ConsumerRoutes
from oncemq.common.durations import parse_duration
from oncemq.common.process_one import leave_process_one
from oncemq.common.redaction import Redactor
from oncemq.config.build.catalog import Catalog
from oncemq.config.build.plan import LoadedApp, Substitutes, build_app
from oncemq.config.model.validate import validate
from oncemq.config.source.problems import ConfigProblem, Position, Problems
from oncemq.config.source.read import note_secrets, read_tree
from oncemq.config.source.tree import Fields, from_python
from oncemq.engine.application import create_tables
from oncemq.engine.plan import AppPlan
from oncemq.engine.publishers.app_publisher import AppPublisher
from oncemq.engine.publishers.async_app_publisher import AsyncAppPublisher
from oncemq.engine.thread_runner import RunningApp
from oncemq.errors import ConfigError
from oncemq.operate import databases, inspection
from oncemq.operate.brokers import chosen_consumers
from oncemq.operate.dead_letters import DeadLetters

Handler = TypeVar("Handler", bound=Callable[..., Any])


class App:
    """A consumer app: `app.topic(…)` describes the messages, `@app.consumer(…)` the functions that handle them.

    Every name means the same as in YAML; durations may also be `timedelta`, and handlers,
    schemas and the like may be the objects themselves.

    Args:
        name: the app's name; part of groups and of every ledger row.
        brokers: by a name of your choice; a URL, or a mapping with `url` and the adapter's options.
        database: a URL, or a mapping with `url`, `username`, `password`, `pool_size`.
        redis: a URL, or a mapping with `url`, `username`, `password`, `timeout`, `connections`.
        defaults: what applies to every consumer that does not override it.
        catalog: the available adapters and strategies; the installed ones by default.
        middlewares: around the handlers of all consumers, outermost first: classes, objects, or names as `module:Class`.
        settings: the other sections of a file: `http`, `logging`, `tracing`, `schemas`, `state`, `grace`, `instance`.
    """

    def __init__(
        self,
        name: str,
        *,
        brokers: Mapping[str, str | Mapping[str, Any]],
        database: str | Mapping[str, Any] | None = None,
        redis: str | Mapping[str, Any] | None = None,
        defaults: Mapping[str, Any] | None = None,
        catalog: Catalog | None = None,
        middlewares: Sequence[type[Any] | str | object] | None = None,
        **settings: Any,
    ) -> None:
        self._position = _caller()
        self._catalog = catalog
        self._name = name
        self._files: tuple[Path, ...] = ()
        self._publisher: AppPublisher | None = None
        self._running: RunningApp | None = None
        self._problems: list[ConfigProblem] = []
        self._topics = Fields({}, self._position)
        self._consumers = Fields({}, self._position)
        self._sections = {
            "app": name,
            "brokers": {broker: _with_url(value) for broker, value in brokers.items()},
            "database": _with_url(database) if database is not None else None,
            "redis": _with_url(redis) if redis is not None else None,
            "defaults": defaults,
            "middlewares": middlewares,
            **settings,
        }

    def __repr__(self) -> str:
        return f"App({self._name!r})"

    @classmethod
    def from_yaml(cls, *files: str | Path) -> Self:
        """Return the app that YAML files declare; you may add topics and consumers to it.

        Args:
            files: the app, and overlay files; `app.yaml` by default. They are read when needed.
        """
        paths = tuple(Path(file) for file in files or ("app.yaml",))
        app = cls(str(paths[0]), brokers={})
        app._files = paths
        return app

    def topic(
        self,
        name: str,
        *,
        key: str | Sequence[str] | None = None,
        version: str | None = None,
        identity: str | Sequence[str] | None = None,
        broker: str | None = None,
        strategies: Strategies | None = None,
        options: Mapping[str, Any] | None = None,
        **more: Unpack[TopicOptions],
    ) -> None:
        """Declare the messages of a topic; its consumers inherit this.

        Args:
            name: the topic's name, for consumers and, unless options say otherwise, for the broker.
            key: the expression of the business entity; several together form one key.
            version: the expression of the entity's version or sequence number.
            identity: the expressions whose values identify a message.
            broker: the broker's name; may be omitted if there is only one.
            strategies: for its consumers, unless they override it.
            options: options of an adapter of your own, by name; those of the shipped adapters are arguments.
            more: `format`, `schema`, `unroutable`, `delay_by`, `claim_check`, `compatibility`, and the shipped adapters' options (`queue`, `exchange` …).
        """
        fields = {
            "key": key,
            "version": version,
            "identity": identity,
            "broker": broker,
            "strategies": strategies,
            **more,
            **(options or {}),
        }
        self._declare(self._topics, "topic", name, fields, _caller())

    def consumer(
        self,
        *,
        topic: str | None = None,
        name: str | None = None,
        group: str | None = None,
        strategies: Strategies | None = None,
        **more: Unpack[ConsumerOptions],
    ) -> Callable[[Handler], Handler]:
        """Make the decorated function a consumer; it remains an ordinary function.

        Args:
            topic: the name of a declared topic; for several write `topics=[…]` instead.
            name: the consumer's name; the function's name by default.
            group: members with the same group share the messages; every group gets all of them.
            strategies: how the consumer is made idempotent, in order.
            more: `effects`, `retry`, `limits`, `workers` and every other consumer option of YAML.
        """
        position = _caller()

        def declare(function: Handler) -> Handler:
            fields = {"topic": topic, "group": group, "strategies": strategies, "handler": function, **more}
            chosen = name or str(getattr(function, "__name__", "handler"))
            self._declare(self._consumers, "consumer", chosen, fields, position)
            return function

        return declare

    def routes(
        self,
        *,
        topic: str | None = None,
        name: str,
        by: str,
        otherwise: Callable[..., Any] | str = "reject",
        group: str | None = None,
        strategies: Strategies | None = None,
        **more: Unpack[ConsumerOptions],
    ) -> ConsumerRoutes:
        """Declare a consumer whose handler is chosen by a value in the message; its `route` adds one.

        Args:
            topic: the name of a declared topic; for several write `topics=[…]` instead.
            name: the consumer's name.
            by: the expression of the value: `headers.event_type`, `body.type`.
            otherwise: `reject`, `ignore`, `unsubscribed`, or the handler of messages with any other value.
            group: as for `consumer`.
            strategies: of all its messages, in order.
            more: as for `consumer`.
        """
        position = _caller()
        handlers = Fields({}, position)
        routes_by = {"by": by, "otherwise": otherwise}
        fields = {"topic": topic, "group": group, "strategies": strategies, "routes": routes_by, **more}
        self._declare(self._consumers, "consumer", name, fields, position)
        declared = self._consumers.fields[name]
        routes = declared.fields.get("routes") if isinstance(declared, Fields) else None
        if isinstance(routes, Fields):
            routes.fields["handlers"] = handlers
        return ConsumerRoutes(handlers, self._problems)

    def check(self) -> list[str]:
        """Return what a person should know about the app; does not connect to a broker.

        Raises:
            ConfigError: the app cannot run; carries every problem.
        """
        loaded = self.load()
        for engine in loaded.plan.engines:
            engine.dispose()
        return [*map(str, loaded.warnings), *_run_warnings(loaded)]

    def plan(self) -> AppPlan:
        """Return the plan that the engine runs.

        Raises:
            ConfigError: the app cannot run; carries every problem.
        """
        return self.load().plan

    def run(self, until_idle: timedelta | str | None = None) -> int:
        """Run in this process until SIGTERM or Ctrl-C, or until no message has arrived for `until_idle`.

        Returns the exit code: 0 when everything that was started is settled, else 1. `processes` is not used, and nothing
        restarts the process: after a handler's hard time limit it ends with code 70, after a second signal with 130.
        As process 1 of a container it continues in a child process; the parent passes signals on, reaps, and ends as the child does.

        Raises:
            OnceMQError: the app could not start.
        """
        loaded = self.load()
        idle = parse_duration(until_idle) if isinstance(until_idle, str) else until_idle
        loaded = _as_one_process(loaded, reaped=leave_process_one())
        return run_loaded(loaded, until_idle=idle)

    def start(self) -> None:
        """Consume in threads of this process, and return when every consumer is subscribed; for services and tests.

        Logging and signals stay with the caller. `stop` ends every thread that publishes or handles.

        Raises:
            OnceMQError: the app could not start; everything opened so far is closed.
            RuntimeError: the app is already running.
        """
        if self._running is not None:
            raise RuntimeError(f"{self!r} runs already")
        running = RunningApp(self.plan())
        running.start()
        self._running = running

    def stop(self) -> int:
        """Finish and settle what was started, within `grace`, and close what `publish` opened.

        Returns the exit code that `run` would have: 0 when everything that was started is settled.
        """
        running, self._running = self._running, None
        publisher, self._publisher = self._publisher, None
        if publisher is not None:
            publisher.close()
        return running.stop() if running is not None else 0

    def create_tables(self) -> list[str]:
        """Create the ledger's tables that are missing, as `oncemq tables create`; returns their names.

        Raises:
            ConfigError: the app cannot work, or has no database.
            LedgerError, InfrastructureError: a database refuses, or cannot be reached.
        """
        plan = self.plan()
        if plan.engine is None:
            raise ConfigError(["the app has no database, so there are no tables: add database: and its URL"])
        try:
            return create_tables(plan)
        finally:
            for engine in plan.engines:
                engine.dispose()

    def engine(self) -> Engine:
        """Return a new engine on the app's database, for scripts that create tables or read effects; the caller disposes it.

        Raises:
            ConfigError: the app cannot work, or has no database, or several.
        """
        engines = self.load(consumers=False).plan.engines
        if len(engines) != 1:
            for engine in engines:
                engine.dispose()
            raise ConfigError(f"the app has {len(engines)} databases, so engine() cannot say which is meant")
        return engines[0]

    def inspect(self, key: str, *, consumer: str | None = None) -> Mapping[str, Sequence[Mapping[str, Any]]]:
        """Return what is known about a business key, as `oncemq inspect KEY --json`: rows by subject.

        `processed`, `claims`, `states`, `strategies`, `parked`, `history`, `suspects`, `outbox`, `delayed`, `requests`, `dead_letters`;
        anything that could not be read, since a broker is away, is a row of `problems` with its `text`.

        Args:
            key: the business key.
            consumer: only this consumer; without it also requests and calls.

        Raises:
            ConfigError: the app cannot work, or has no such consumer.
            LedgerError, InfrastructureError: the database refuses, or cannot be reached.
        """
        plan = self.plan()
        try:
            consumers = chosen_consumers(plan, consumer)
            if plan.engine is not None:
                databases.prove(plan)
            found, problems = inspection.of_key(plan, key, consumers, with_requests=consumer is None)
        finally:
            for engine in plan.engines:
                engine.dispose()
        return {**found, "problems": [{"text": text} for text in problems]}

    @property
    def dead_letters(self) -> DeadLetters:
        """The functions of `oncemq dead-letters`: `list`, `replay` and `purge`; each call opens its own connection."""
        return DeadLetters(self.plan)

    def publish(
        self,
        topic: str,
        body: Any,
        *,
        key: str | int | None = None,
        version: int | None = None,
        headers: Mapping[str, str] | None = None,
        message_id: str | None = None,
        session: Session | Connection | None = None,
    ) -> str:
        """Publish from outside of handlers; as `AppPublisher.publish`, with the same arguments and errors.

        The first call opens a publisher, which `stop` closes. For many messages, or for a web service, keep one of
        `publisher()`.
        """
        if self._publisher is None:
            self._publisher = self.publisher()
        return self._publisher.publish(
            topic, body, key=key, version=version, headers=headers, message_id=message_id, session=session
        )

    def publisher(self) -> AppPublisher:
        """Return a publisher to the app's topics for use outside of handlers; as `oncemq.open_publisher`."""
        return AppPublisher(lambda: for_publishing(self.load(consumers=False)))

    def async_publisher(self) -> AsyncAppPublisher:
        """Return the same for coroutines; as `oncemq.open_async_publisher`."""
        return AsyncAppPublisher(lambda: for_publishing(self.load(consumers=False)))

    def load(self, *, consumers: bool = True) -> LoadedApp:
        """Return the app checked and built, as the program `oncemq` uses it: `oncemq -f module:app run`.

        Args:
            consumers: build the consumers; without them the app can only publish.

        Raises:
            ConfigError: the app cannot work; carries every problem.
        """
        return self._load(None, consumers=consumers)

    def _load(self, substitutes: Substitutes | None, *, consumers: bool = True) -> LoadedApp:
        problems = Problems(found=list(self._problems))
        tree, folder = self._tree(problems)
        model = validate(tree, problems)
        problems.raise_errors()
        if model is None:
            raise ConfigError(problems.found)
        if not consumers:
            model = model.model_copy(update={"consumers": {}})
        return build_app(model, tree, problems, folder, self._catalog, substitutes)

    def _tree(self, problems: Problems) -> tuple[Fields, Path]:
        if self._files:
            tree = read_tree(self._files, os.environ, problems)
            for section, added in (("topics", self._topics), ("consumers", self._consumers)):
                self._add(tree, section, added, problems)
            return tree, self._files[0].parent
        given = {name: value for name, value in self._sections.items() if value is not None}
        found = from_python(given, self._position)
        if not isinstance(found, Fields):
            raise TypeError("an app's sections are a mapping")
        found.fields |= {"topics": self._topics, "consumers": self._consumers}
        note_secrets(found, problems)
        return found, Path(self._position.file).parent

    def _add(self, tree: Fields, section: str, added: Fields, problems: Problems) -> None:
        """Merge the declarations in Python with those of the files."""
        there = tree.fields.setdefault(section, Fields({}, self._position))
        if not isinstance(there, Fields):
            return
        for name, node in added.fields.items():
            if name in there.fields:
                text = f"{section.removesuffix('s')} {name!r} is declared a second time"
                first = there.key_position(name)
                problems.found.append(
                    ConfigProblem(added.key_position(name), text, f"the first one is at {first}")
                )
                continue
            there.fields[name] = node
            there.keys[name] = added.key_position(name)

    def _declare(
        self, section: Fields, kind: str, name: str, fields: Mapping[str, Any], position: Position
    ) -> None:
        if name in section.fields:
            text = f"{kind} {name!r} is declared a second time"
            self._problems.append(ConfigProblem(position, text, "give each a name of its own"))
            return
        given = {field: value for field, value in fields.items() if value is not None}
        section.fields[name] = from_python(given, position)
        section.keys[name] = position


def _run_warnings(loaded: LoadedApp) -> list[str]:
    processes = loaded.model.processes
    if processes == 1:
        return []
    return [
        f"processes: {processes} – App.run() is one process; `oncemq -f module:app run` starts {processes}"
    ]


def _as_one_process(loaded: LoadedApp, *, reaped: bool) -> LoadedApp:
    """Return the app with the warnings about running it in this process alone."""
    found = _run_warnings(loaded)
    if not reaped:
        found.append(
            "this is process 1 of a container and has threads already: processes that handlers leave behind are not reaped – "
            "call App.run() before anything that starts a thread, or start the app by `oncemq -f module:app run`"
        )
    plan = replace(loaded.plan, warnings=(*loaded.plan.warnings, *found))
    return replace(loaded, plan=plan)


def load_for_test(app: App, substitutes: Substitutes) -> LoadedApp:
    """Return the app checked and built as by `App.load`, with some parts substituted; for `oncemq.testing`."""
    return app._load(substitutes)


def for_publishing(loaded: LoadedApp) -> tuple[AppPlan, Callable[[str], str]]:
    """Return what a publisher needs: the plan, and what hides secrets in texts."""
    return loaded.plan, Redactor(loaded.secrets)


def _with_url(value: Any) -> Any:
    return {"url": value} if isinstance(value, str) else value


def _caller() -> Position:
    frame = sys._getframe(2)
    return Position(frame.f_code.co_filename, frame.f_lineno)
