"""Builds the AsyncAPI 3.0 document of a loaded app: servers, channels, operations, messages and payload schemas."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from oncemq.asyncapi.brokers import description_of
from oncemq.asyncapi.payloads import PayloadSchemas
from oncemq.asyncapi.values import Identifiers, extensions, named, retry_of, routes_of, strategies_of
from oncemq.common.durations import format_duration
from oncemq.config.build.importing import import_object
from oncemq.config.build.plan import LoadedApp
from oncemq.config.build.shared_parts import written
from oncemq.config.model.consumer_settings import ConsumerSettings
from oncemq.contracts.adapter import Subscription
from oncemq.contracts.descriptions import BrokerDescription, TopicDescription
from oncemq.engine.plan import ConsumerPlan
from oncemq.message.outgoing import CONTENT_TYPES

ASYNCAPI: Final = "3.0.0"
_BYTES: Final = "application/octet-stream"


@dataclass(frozen=True, slots=True)
class Description:
    """A document, and what it could not say.

    Args:
        document: the AsyncAPI document, as JSON holds it.
        without: payload types that have no JSON Schema, as `module:name`.
    """

    document: dict[str, Any]
    without: tuple[str, ...]


def asyncapi_document(loaded: LoadedApp, version: str, folder: Path = Path()) -> Description:
    """Return the app's AsyncAPI document; connects to nothing.

    Args:
        loaded: the app.
        version: the app's own version, which the configuration does not have.
        folder: the folder of the app's file, which errors name.
    """
    return _Writer(loaded, folder).write(version)


@dataclass(slots=True)
class _Channel:
    """One topic while the document is written."""

    id: str
    broker: str
    place: TopicDescription
    content_type: str
    meaning: dict[str, Any]
    types: list[Any] = field(default_factory=list)

    @property
    def reference(self) -> dict[str, str]:
        return {"$ref": f"#/channels/{self.id}"}

    @property
    def messages(self) -> list[dict[str, str]]:
        return [{"$ref": f"#/channels/{self.id}/messages/{self.id}"}]


class _Writer:
    """Writes the document of one app."""

    def __init__(self, loaded: LoadedApp, folder: Path) -> None:
        self._app = loaded
        self._folder = folder
        self._ids = Identifiers()
        self._operations_ids = Identifiers()
        self._servers: dict[str, list[str]] = {}
        self._brokers: dict[str, BrokerDescription] = {
            name: description_of(loaded.plan.adapters[name], str(broker.url))
            for name, broker in loaded.model.brokers.items()
        }
        self._channels = {name: self._channel(name) for name in loaded.plan.topics}

    def write(self, version: str) -> Description:
        settled = {consumer.name: consumer for consumer in self._app.consumers}
        for consumer in self._app.plan.consumers:
            self._note_types(consumer, settled[consumer.name])
        types = [kind for channel in self._channels.values() for kind in channel.types]
        schemas = PayloadSchemas(types)
        login: dict[str, Any] = {}
        document: dict[str, Any] = {
            "asyncapi": ASYNCAPI,
            "info": {"title": self._app.plan.name, "version": version},
            "defaultContentType": CONTENT_TYPES["json"],
            "servers": dict(self._server_entries(login)),
            "channels": {channel.id: self._channel_entry(channel) for channel in self._channels.values()},
            "operations": {
                **dict(self._receiving(settled)),
                **dict(self._sending(settled)),
            },
        }
        components = {
            "messages": {channel.id: _message(channel, schemas) for channel in self._channels.values()},
            "schemas": dict(schemas.components),
            "securitySchemes": login,
        }
        document["components"] = {name: part for name, part in components.items() if part}
        return Description(document, tuple(dict.fromkeys(map(named, schemas.without))))

    def _channel(self, name: str) -> _Channel:
        outgoing, declared = self._app.plan.topics[name], self._app.model.topics[name]
        meaning = {
            "key": _expression(declared.key),
            "version": declared.version,
            "identity": list(declared.identity or ()),
        }
        channel = _Channel(
            self._ids.of(name),
            outgoing.broker,
            self._brokers[outgoing.broker].topic(name, outgoing.options),
            CONTENT_TYPES.get(declared.format or "json", _BYTES),
            meaning,
        )
        self._add_type(channel, declared.schema_)
        return channel

    def _note_types(self, consumer: ConsumerPlan, settled: ConsumerSettings) -> None:
        channel = self._channels[settled.topic]
        self._add_type(channel, settled.schema)
        self._add_type(channel, consumer.handler.payload)

    def _add_type(self, channel: _Channel, kind: Any) -> None:
        if isinstance(kind, str):
            kind = import_object(kind, self._folder)
        if kind is not None and not any(kind is other or kind == other for other in channel.types):
            channel.types.append(kind)

    def _server_entries(self, login: dict[str, Any]) -> Iterable[tuple[str, dict[str, Any]]]:
        ids = Identifiers()
        for name, broker in self._brokers.items():
            server = broker.server()
            entry: dict[str, Any] = {"protocol": server.protocol}
            if server.version:
                entry["protocolVersion"] = server.version
            if server.path:
                entry["pathname"] = server.path
            if server.login:
                login[server.login] = {"type": server.login}
                entry["security"] = [{"$ref": f"#/components/securitySchemes/{server.login}"}]
            entry |= extensions(server.facts)
            self._servers[name] = []
            for number, host in enumerate(server.hosts, start=1):
                key = ids.of(name if number == 1 else f"{name}-{number}")
                self._servers[name].append(key)
                yield key, {"host": host, **entry}

    def _channel_entry(self, channel: _Channel) -> dict[str, Any]:
        place = channel.place
        entry: dict[str, Any] = {
            "address": place.address,
            "messages": {channel.id: {"$ref": f"#/components/messages/{channel.id}"}},
            "servers": [{"$ref": f"#/servers/{server}"} for server in self._servers[channel.broker]],
        }
        if place.parameters:
            entry["parameters"] = {name: {"enum": list(values)} for name, values in place.parameters.items()}
        if place.channel:
            entry["bindings"] = _copied(place.channel)
        return entry | extensions({**channel.meaning, **place.facts})

    def _receiving(self, settled: Mapping[str, ConsumerSettings]) -> Iterable[tuple[str, dict[str, Any]]]:
        for consumer in self._app.plan.consumers:
            settings = settled[consumer.name]
            channel = self._channels[settings.topic]
            own = self._brokers[settings.broker].subscription(_subscription(settings))
            function = settings.handler
            entry: dict[str, Any] = {"action": "receive", "channel": channel.reference}
            if summary := _first_line(function, self._folder):
                entry["summary"] = summary
            entry["messages"] = channel.messages
            if own.receiving:
                entry["bindings"] = _copied(own.receiving)
            facts = {
                "group": settings.group,
                "handler": consumer.handler.name,
                "effects": settings.effects.value,
                **_differing(settings, channel.meaning),
                "strategies": strategies_of(settings, self._app.plan.redact),
                "retry": retry_of(consumer.retry),
                "routes": routes_of(settings, consumer, self._app.plan.redact),
                "retries": own.retries,
                "dead-letters": own.dead_letters,
                "keep": format_duration(settings.keep),
                "expires": _expires(settings),
                **own.facts,
            }
            yield self._operations_ids.of(consumer.name), entry | extensions(facts)

    def _sending(self, settled: Mapping[str, ConsumerSettings]) -> Iterable[tuple[str, dict[str, Any]]]:
        for consumer in self._app.plan.consumers:
            for topic in settled[consumer.name].publishes or ():
                yield self._send(f"{consumer.name}-to-{topic}", topic, {"consumer": consumer.name})
        used = {settings.topic for settings in settled.values()}
        used |= {topic for settings in settled.values() for topic in settings.publishes or ()}
        for topic in self._channels:
            # A topic that no consumer reads is there to be published to.
            if topic not in used:
                yield self._send(f"to-{topic}", topic, {})

    def _send(self, name: str, topic: str, facts: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
        channel = self._channels[topic]
        entry: dict[str, Any] = {
            "action": "send",
            "channel": channel.reference,
            "messages": channel.messages,
        }
        if channel.place.sending:
            entry["bindings"] = _copied(channel.place.sending)
        return self._operations_ids.of(name), entry | extensions(facts)


def _message(channel: _Channel, schemas: PayloadSchemas) -> dict[str, Any]:
    """Return the one message of a topic; where consumers read it by several types, a body must be valid for all."""
    entry: dict[str, Any] = {"name": channel.id, "contentType": channel.content_type}
    found = [schema for schema in map(schemas.of, channel.types) if schema is not None]
    if found:
        entry["payload"] = found[0] if len(found) == 1 else {"allOf": found}
    if channel.place.message:
        entry["bindings"] = _copied(channel.place.message)
    return entry


def _subscription(settings: ConsumerSettings) -> Subscription:
    return Subscription(settings.name, settings.topic, settings.group, written(settings.options))


def _expression(parts: Iterable[str] | None) -> str | None:
    found = list(parts or ())
    return found[0] if len(found) == 1 else f"[{', '.join(found)}]" if found else None


def _differing(settings: ConsumerSettings, meaning: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a message means for this consumer, where it is not what its topic says."""
    own = {"key": settings.key, "version": settings.version, "identity": list(settings.identity)}
    return {name: value for name, value in own.items() if value != meaning[name]}


def _expires(settings: ConsumerSettings) -> Any:
    if settings.expires_after is not None:
        return format_duration(settings.expires_after)
    return settings.deadline


def _first_line(function: Any, folder: Path) -> str:
    """Return the first line of the handler's docstring."""
    found = import_object(function, folder) if isinstance(function, str) else function
    return (getattr(found, "__doc__", None) or "").strip().partition("\n")[0]


def _copied(bindings: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    return {protocol: dict(binding) for protocol, binding in bindings.items()}
