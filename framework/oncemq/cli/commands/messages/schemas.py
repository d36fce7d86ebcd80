"""The commands `schemas check`, `list` and `show`: versions of payload schemas and their compatibility."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from oncemq.cli.exit_codes import FAILED, OK
from oncemq.cli.files import app_option
from oncemq.cli.output import Output, counted, json_option, warn
from oncemq.config import load
from oncemq.config.build.plan import LoadedApp
from oncemq.config.build.reading.levels import declared_level, undeclared_fields
from oncemq.errors import ConfigError
from oncemq.registry import did_you_mean
from oncemq.schemas.compatibility import Comparison, Level, compare
from oncemq.schemas.registry import Registered


@click.group("schemas", short_help="Check, list or print versions of payload schemas.")
def schemas() -> None:
    """Check, list or print the versions that `schemas:` registers; handlers are not imported, nothing is connected to."""


@schemas.command(
    "check",
    short_help="Check that new versions are compatible.",
    epilog="""\b
Examples:
  oncemq schemas check
  oncemq schemas check order.paid --json
""",
)
@click.argument("topics", nargs=-1)
@click.option("--pass-unjudged", is_flag=True, help="Do not fail because of changes that cannot be judged.")
@json_option
@app_option
def check(files: Sequence[Path], topics: Sequence[str], pass_unjudged: bool, as_json: bool) -> int:
    """Compare the versions of each topic by its level, and say in words what keeps one from being read as another.

    The exit code is 1 if a version is incompatible, or if a change cannot be judged.
    """
    loaded = _loaded(files)
    out = Output(as_json=as_json)
    compared, wrong = 0, 0
    for topic in _chosen(loaded, topics):
        if topic not in loaded.model.topics:
            near = did_you_mean(topic, list(loaded.model.topics))
            warn(
                f"{topic!r} is not a topic of this app{near} – rename its files, unless they belong to another app"
            )
        versions, level = loaded.registry.versions(topic), _level_of(loaded, topic)
        for comparison in compare(versions, level, undeclared=undeclared_fields(loaded.model)):
            fails = comparison.breaks or (bool(comparison.differences) and not pass_unjudged)
            compared, wrong = compared + 1, wrong + fails
            out.record(_record(comparison, level))
            for line in _lines(comparison):
                out.line(line)
        if len(versions) < 2 or level is Level.NONE:
            out.line(f"{topic}: {counted(len(versions), 'version')}, level {level}: nothing to compare")
    out.line(f"{counted(compared, 'comparison')}, {wrong} failed")
    return FAILED if wrong else OK


@schemas.command("list", short_help="List registered versions.")
@json_option
@app_option
def list_(files: Sequence[Path], as_json: bool) -> None:
    """List topics, versions, levels, and where each version is written."""
    loaded = _loaded(files)
    rows = [
        {
            "topic": topic,
            "version": version.version,
            "compatibility": str(_level_of(loaded, topic)),
            "place": version.place,
        }
        for topic in loaded.registry.topics()
        for version in loaded.registry.versions(topic)
    ]
    columns = {name: name for name in ("topic", "version", "compatibility", "place")}
    Output(as_json=as_json).rows(columns, rows, none="no version is registered: see `schemas:`")


@schemas.command(
    "show",
    short_help="Print a version as JSON.",
    epilog="""\b
Examples:
  oncemq schemas show order.paid
  oncemq schemas show order.paid --version 2 > schemas/order.paid.v2.json
""",
)
@click.argument("topic")
@click.option("--version", type=click.IntRange(min=1), help="Which version. Default: the highest.")
@app_option
def show(files: Sequence[Path], topic: str, version: int | None) -> None:
    """Print the JSON Schema of a version, also where a type of yours is its source."""
    loaded = _loaded(files)
    _chosen(loaded, [topic])
    versions = {found.version: found for found in loaded.registry.versions(topic)}
    if version is not None and version not in versions:
        known = ", ".join(found.name for found in versions.values())
        raise ConfigError([f"topic {topic!r} has no version {version}; registered are {known}"])
    click.echo(json.dumps(versions[version or max(versions)].schema, indent=2, ensure_ascii=False))


def _loaded(files: Sequence[Path]) -> LoadedApp:
    loaded = load(files, consumers=False)
    for engine in loaded.plan.engines:
        click.get_current_context().call_on_close(engine.dispose)
    return loaded


def _chosen(loaded: LoadedApp, topics: Sequence[str]) -> Sequence[str]:
    """Return the topics that are meant, by default all that have a version.

    Raises:
        ConfigError: one of them has none.
    """
    known = loaded.registry.topics()
    if not known:
        raise ConfigError(
            ["the app registers no version of a schema – write schemas: and the folder of their files"]
        )
    for topic in topics:
        if topic not in known:
            raise ConfigError([f"topic {topic!r} has no registered version{did_you_mean(topic, known)}"])
    return topics or known


def _level_of(loaded: LoadedApp, topic: str) -> Level:
    return declared_level(loaded.model, topic) or Level.BACKWARD


def _lines(comparison: Comparison) -> Iterator[str]:
    writer, reader = comparison.writer, comparison.reader
    topic = f"{writer.topic}: bodies of {writer.name}"
    if not comparison.differences:
        yield f"{topic} can be read as {reader.name}"
        return
    yield (
        f"{topic} cannot all be read as {reader.name}"
        if comparison.breaks
        else f"{topic}: whether all can be read as {reader.name} cannot be judged"
    )
    for difference in comparison.differences:
        yield f"  {difference}"
    yield f"  ({_places(writer, reader)})"


def _places(*versions: Registered) -> str:
    return ", ".join(f"{version.name}: {version.place}" for version in versions)


def _record(comparison: Comparison, level: Level) -> Mapping[str, Any]:
    return {
        "topic": comparison.writer.topic,
        "compatibility": str(level),
        "written": comparison.writer.version,
        "read": comparison.reader.version,
        "compatible": not comparison.differences,
        "differences": [
            {"path": each.path, "text": each.text, "judged": each.judged} for each in comparison.differences
        ],
    }
