"""The command `publish`: publishes the lines of a file as messages of a topic, with confirms."""

import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import IO, Any, cast

import click

from oncemq.cli.exit_codes import FAILED, OK
from oncemq.cli.files import app_option
from oncemq.cli.open_app import opened
from oncemq.cli.output import Output, counted, json_option, shown, warn
from oncemq.cli.publish_lines import Line, LineReader
from oncemq.config import load
from oncemq.config.build.plan import LoadedApp
from oncemq.config.build.shared_parts import written
from oncemq.config.model.app_model import Topic
from oncemq.contracts.adapter import Adapter, Confirmed, Refused
from oncemq.contracts.unit import Outgoing
from oncemq.errors import BrokerError, BrokerUnavailable, ConfigError, Unpublishable
from oncemq.ledger.messages import delayed
from oncemq.ledger.messages.outbox import Claim
from oncemq.message.headers import PRIORITY
from oncemq.message.outgoing import Claims, DelayBy
from oncemq.observe.fields import error_text
from oncemq.operate.brokers import prepared
from oncemq.registry import did_you_mean

BATCH = 500
SHOWN_PROBLEMS = 20
IN_MEMORY = 64 * 1024 * 1024
"""Bytes of stdin kept in memory during the check; more goes to a temporary file."""


@dataclass(slots=True)
class Summary:
    """Result of publishing a file's lines.

    Args:
        topic: their topic.
        published: number of confirmed messages.
        refused: lines that the broker refused, with its reason.
        bad: number of lines that are not messages.
        unsent: number not sent because the connection was lost.
    """

    topic: str
    published: int = 0
    refused: list[tuple[int, str]] = field(default_factory=list)
    bad: int = 0
    unsent: int = 0

    @property
    def complete(self) -> bool:
        """Whether every line has been published."""
        return not (self.refused or self.bad or self.unsent)


@click.command("publish", short_help="Publish JSON lines to a topic.")
@click.argument("topic")
@click.argument("file", type=click.Path(dir_okay=False, allow_dash=True, path_type=Path), default="-")
@click.option(
    "--envelope",
    is_flag=True,
    help='Each line is {"body": …, "headers": {…}, "key": "…", "id": "…"}; only body is needed.',
)
@click.option("--delay", help='How long consumers wait for them from now, such as "30m".')
@click.option("--at", help='Until when consumers wait for them, such as "2026-12-24T18:00:00+01:00".')
@click.option(
    "--priority",
    type=int,
    help="Of all messages: those with a higher one come first, on a topic with max_priority.",
)
@click.option("--skip-bad", is_flag=True, help="Publish the good lines although others are bad.")
@json_option
@app_option
def publish(
    topic: str,
    file: Path,
    files: tuple[Path, ...],
    *,
    envelope: bool,
    delay: str | None,
    at: str | None,
    priority: int | None,
    skip_bad: bool,
    as_json: bool,
) -> int:
    """Publish every line of FILE (or stdin, -) to TOPIC.

    Each line is the body of one message. All lines are checked first: they must decode, and key, version and
    identity of the topic must be found in them. If a line is bad, nothing is published, unless --skip-bad is given.

    Every message has an id; those without one are given a new one each time, so repeat a failed file with
    --envelope and ids of your own if consumers use `identity: message_id`.

    With --delay or --at the messages are stored in the app's database, and a running process of the app (`oncemq run` or
    `oncemq relay`) sends them when they are due; where the topic says `delay_by: broker`, its broker keeps them.

    Exit code 0: the broker, or the database, has every line. 1: something is bad, refused or unsent; it is listed.
    """
    app = load(files)
    declared = _topic(app, topic)
    later = _Later.of(app, topic, delay, at)
    more = _priority(app, topic, priority)
    examine = app.plan.topics[topic].examine
    lines = LineReader(topic, declared.format or "json", examine, envelope=envelope, more=more)
    summary = Summary(topic)
    output = Output(as_json=as_json)
    began = time.monotonic()
    with _rereadable(file) as stream:
        total = _check(lines, stream, _name(file), summary)
        stream.seek(0)
        if not summary.bad or skip_bad:
            good = (line for line in lines.read(stream) if line.message is not None)
            claims = app.plan.topics[topic].claims
            if later is not None and not later.timer:
                _store(app, topic, _claimed(later.marked(good), claims), summary)
            else:
                timed = _claimed(good if later is None else later.marked(good), claims)
                _publish(app, topic, declared, timed, total, summary, output)
    _report(
        output,
        summary,
        _name(file),
        time.monotonic() - began,
        stopped=bool(summary.bad) and not skip_bad,
        later=later,
    )
    return OK if summary.complete else FAILED


@dataclass(frozen=True, slots=True)
class _Later:
    """When messages shall be sent, and what keeps them until then.

    Args:
        due_at: the moment, aware.
        timer: the broker keeps them, else the app's database.
    """

    due_at: datetime
    timer: bool

    @classmethod
    def of(cls, app: LoadedApp, topic: str, delay: str | None, at: str | None) -> "_Later | None":
        """Return the moment; None = at once.

        Raises:
            click.UsageError: it is none, or nothing can keep the messages until then.
        """
        declared = app.plan.topics.get(topic)
        if delay is None and at is None:
            return None
        if declared is None:
            raise click.UsageError(
                f"messages to {topic} cannot be kept for later: `oncemq check` says what is wrong"
            )
        try:
            due = declared.delays.due(topic, delay, None if at is None else datetime.fromisoformat(at))
        except (Unpublishable, ValueError) as error:
            raise click.UsageError(str(error)) from error
        return None if due is None else cls(due, declared.delays.by is DelayBy.BROKER)

    def marked(self, lines: Iterator[Line]) -> Iterator[Line]:
        """Yield the lines with their moment."""
        for line in lines:
            if line.message is not None:
                yield replace(line, message=replace(line.message, due_at=self.due_at, timer=self.timer))


def _priority(app: LoadedApp, topic: str, priority: int | None) -> dict[str, str]:
    """Return the header of a priority; none without one."""
    declared = app.plan.topics.get(topic)
    if priority is None or declared is None:
        return {}
    try:
        return {PRIORITY: declared.priority(priority)}
    except Unpublishable as error:
        raise click.UsageError(str(error)) from error


def _claimed(lines: Iterator[Line], claims: Claims | None) -> Iterator[Line]:
    """Yield the lines; large bodies are in the topic's store by then."""
    for line in lines:
        message = line.message
        yield line if claims is None or message is None else replace(line, message=claims.outgoing(message))


def _topic(app: LoadedApp, name: str) -> Topic:
    if name not in app.model.topics:
        raise ConfigError([f"unknown topic {name!r}{did_you_mean(name, list(app.model.topics))}"])
    return app.model.topics[name]


def _broker(app: LoadedApp, topic: Topic) -> str:
    return topic.broker or next(iter(app.plan.adapters))


@contextmanager
def _rereadable(file: Path) -> Iterator[IO[bytes]]:
    """Yield the file for two passes; stdin is copied, because nothing is published before all lines are checked."""
    if str(file) == "-":
        with tempfile.SpooledTemporaryFile(max_size=IN_MEMORY) as copy:
            shutil.copyfileobj(sys.stdin.buffer, copy)
            copy.seek(0)
            yield cast("IO[bytes]", copy)
        return
    try:
        stream = file.open("rb")
    except OSError as error:
        raise click.UsageError(f"{file} cannot be read: {error.strerror}") from error
    with stream:
        yield stream


def _name(file: Path) -> str:
    return "stdin" if str(file) == "-" else str(file)


def _check(lines: LineReader, stream: IO[bytes], name: str, summary: Summary) -> int:
    good = 0
    for line in lines.read(stream):
        if line.message is not None:
            good += 1
            continue
        summary.bad += 1
        if summary.bad <= SHOWN_PROBLEMS:
            warn(f"{name}:{line.number}: {line.problem}")
    if summary.bad > SHOWN_PROBLEMS:
        warn(f"… and {counted(summary.bad - SHOWN_PROBLEMS, 'bad line')} more")
    return good


def _store(app: LoadedApp, name: str, good: Iterator[Line], summary: Summary) -> None:
    """Store messages for later, each on the shard of its key, in one transaction a batch."""
    opened(app.plan)
    clock, layout = app.plan.clock, app.plan.layout
    while batch := list(islice(good, BATCH)):
        by_shard: dict[int, list[Outgoing]] = {}
        for line in batch:
            if line.message is not None:
                key = line.message.key
                shard = 0 if layout is None or key is None else layout.shard_of(key)
                by_shard.setdefault(shard, []).append(Outgoing(name, line.message, None))
        for shard, outgoing in by_shard.items():
            now = clock.now()
            with app.plan.engines[shard].begin() as connection:
                delayed.keep(
                    connection, Claim(app.plan.name, "", now), f"{app.plan.name}.publish", outgoing, now
                )
            summary.published += len(outgoing)


def _publish(
    app: LoadedApp,
    name: str,
    topic: Topic,
    good: Iterator[Line],
    total: int,
    summary: Summary,
    output: Output,
) -> None:
    broker = _broker(app, topic)
    consumers = [consumer for consumer in app.plan.consumers if consumer.subscription.topic == name]
    options = written(topic.options)
    with prepared(app.plan, broker, consumers) as adapter, output.progress() as progress:
        task = progress.add_task(f"publishing to {name}", total=total)
        while batch := list(islice(good, BATCH)):
            away = _send(adapter, name, options, batch, summary)
            progress.advance(task, len(batch))
            if away:
                summary.unsent = sum(1 for _ in good)
                return


def _send(
    adapter: Adapter, name: str, options: dict[str, Any], batch: Sequence[Line], summary: Summary
) -> bool:
    """Publish one batch; returns whether the connection was lost."""
    away = False
    answers: Sequence[Confirmed | Refused]
    try:
        now = datetime.now(UTC)
        messages = [line.message.timed(now) for line in batch if line.message is not None]
        answers = adapter.publish(name, options, messages)
    except BrokerError as error:
        answers = [Refused(error)] * len(batch)
    for line, answer in zip(batch, answers, strict=True):
        if isinstance(answer, Refused):
            summary.refused.append((line.number, error_text(answer.error)))
            away = away or isinstance(answer.error, BrokerUnavailable)
        else:
            summary.published += 1
    return away


def _report(
    output: Output, summary: Summary, name: str, seconds: float, *, stopped: bool, later: _Later | None
) -> None:
    for number, problem in summary.refused[:SHOWN_PROBLEMS]:
        warn(f"{name}:{number}: refused: {problem}")
    if len(summary.refused) > SHOWN_PROBLEMS:
        warn(f"… and {counted(len(summary.refused) - SHOWN_PROBLEMS, 'refused message')} more")
    output.record(
        {
            "topic": summary.topic,
            "published": summary.published,
            "refused": [{"line": number, "error": problem} for number, problem in summary.refused],
            "bad": summary.bad,
            "unsent": summary.unsent,
            "seconds": round(seconds, 3),
            **({} if later is None else {"due_at": later.due_at}),
        }
    )
    if stopped:
        output.line(f"nothing published: {counted(summary.bad, 'bad line')}; correct them, or add --skip-bad")
        return
    when = "" if later is None else f" for {shown(later.due_at)}"
    parts = [f"published {counted(summary.published, 'message')} to {summary.topic}{when}"]
    troubles = {"refused": len(summary.refused), "bad": summary.bad, "unsent": summary.unsent}
    parts += [f"{count:,} {what}" for what, count in troubles.items() if count]
    output.line(", ".join(parts))
