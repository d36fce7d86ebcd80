"""Builds what checks bodies against the registered schema of their own version."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from oncemq.config.build.shared_parts import Reporter
from oncemq.config.model.app_model import AppModel
from oncemq.config.model.consumer_settings import ConsumerSettings
from oncemq.config.source.tree import Path
from oncemq.errors import MissingExtra
from oncemq.message.body_version import BodyVersion, Check, checking
from oncemq.message.registry_header import CONFLUENT_JSON
from oncemq.schemas.bodies import BodySchemas, UnusableSchema
from oncemq.schemas.registry import Registry

JSON_FORMATS = ("json", CONFLUENT_JSON)


@dataclass(frozen=True, slots=True)
class TopicBodies:
    """How the bodies of a topic are checked where it says `body_version`.

    Args:
        version: reads their versions.
        check: refuses what a body's own version does not allow.
    """

    version: BodyVersion
    check: Check


def build_topic_bodies(model: AppModel, registry: Registry, report: Reporter) -> dict[str, TopicBodies]:
    """Return what checks the bodies of topics with `body_version`, by topic; what cannot be checked is reported."""
    found = {}
    for name, topic in model.topics.items():
        if topic.body_version is None:
            continue
        path, option = ("topics", name, "body_version"), topic.body_version
        schemas = schemas_for(name, option.named, registry, path, report, every=True)
        if (
            not _fits(topic.format or "json", path, report, ids=option.registry_ids is not None)
            or schemas is None
        ):
            continue
        registered = f"registered are {', '.join(map(str, schemas.numbers))}"
        version = BodyVersion(name, option.expression, option.without, option.registry_ids, registered)
        found[name] = TopicBodies(version, checking(version, schemas))
    return found


def _fits(body_format: str, path: Path, report: Reporter, *, ids: bool) -> bool:
    """Return whether bodies of a format can be checked; what keeps them from it is reported."""
    if body_format not in JSON_FORMATS:
        report.at(
            path,
            f"bodies of format {body_format} are no JSON, which alone a schema is for",
            "write format: json, or leave body_version out",
        )
    elif ids and body_format != CONFLUENT_JSON:
        report.at(
            path,
            f"registry_ids are read from a header in front of bodies, which format {body_format} does not have",
            f"write format: {CONFLUENT_JSON}, or version: and where messages have it",
        )
    else:
        return True
    return False


def schemas_for(
    topic: str,
    versions: Sequence[int],
    registry: Registry,
    path: Path,
    report: Reporter,
    *,
    every: bool = False,
) -> BodySchemas | None:
    """Return the schemas of a topic's versions; None if bodies cannot be checked against them, which is reported.

    Args:
        topic: the topic's name.
        versions: that must be registered.
        registry: the registered ones.
        path: where they are named.
        report: receives problems.
        every: all registered versions, not these alone; then there must be some.
    """
    registered = {each.version: each for each in registry.versions(topic)}
    missing = [version for version in versions if version not in registered]
    if every and not registered:
        report.at(path, f"no version of {topic!r} is registered", "add its schemas below schemas:")
        return None
    if missing:
        known = ", ".join(map(str, sorted(registered)))
        report.at(
            path,
            f"version {missing[0]} of {topic!r} is not registered",
            f"registered are {known}; add it to schemas:, or leave it out",
        )
        return None
    try:
        return BodySchemas(topic, registered.values() if every else [registered[each] for each in versions])
    except (MissingExtra, UnusableSchema) as error:
        report.at(path, str(error))
    return None


def accepted_schemas(
    settled: ConsumerSettings, registry: Registry, report: Reporter, bodies: Mapping[str, TopicBodies]
) -> BodySchemas | None:
    """Return the schemas of the versions that a consumer accepts; None if its topic checks bodies, or nothing can."""
    if settled.accepts is None or settled.topic in bodies or not registry.versions(settled.topic):
        return None
    if settled.format not in JSON_FORMATS:
        return None
    return schemas_for(settled.topic, settled.accepts.versions, registry, settled.path("accepts"), report)
