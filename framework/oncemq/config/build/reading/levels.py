"""Compares the registered versions of topics whose level of compatibility is declared."""

from oncemq.config.build.shared_parts import Reporter
from oncemq.config.model.app_model import AppModel
from oncemq.config.model.schemas_section import NEVER
from oncemq.schemas.compatibility import Level, compare
from oncemq.schemas.registry import Registry


def declared_level(model: AppModel, topic: str) -> Level | None:
    """Return the level that a topic declares, or the app for all its topics; None if neither says one."""
    declared = model.topics.get(topic)
    own = None if declared is None else declared.compatibility
    found = own or (model.schemas and model.schemas.compatibility)
    return Level(found) if found else None


def undeclared_fields(model: AppModel) -> bool:
    """Return whether bodies may have fields that their version allows without declaring them."""
    return model.schemas is None or model.schemas.undeclared_fields != NEVER


def check_levels(model: AppModel, registry: Registry, report: Reporter) -> None:
    """Report versions that certainly break the level that is declared for their topic; what cannot be judged is left out."""
    for topic in registry.topics():
        level = declared_level(model, topic)
        if level is None or topic not in model.topics:
            continue
        own = model.topics[topic].compatibility is not None
        path = ("topics", topic, "compatibility") if own else ("schemas", "compatibility")
        for found in compare(registry.versions(topic), level, undeclared=undeclared_fields(model)):
            if found.breaks:
                first = next(str(each) for each in found.differences if each.judged)
                report.at(
                    path,
                    f"{topic} is declared {level}, and bodies of {found.writer.name} ({found.writer.place}) cannot all be read as "
                    f"{found.reader.name} ({found.reader.place}): {first}",
                    "`oncemq schemas check` tells all; change the new version, or declare a level that it keeps",
                )
