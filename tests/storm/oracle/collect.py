"""Gathers the evidence through connections of the oracle's own: plain drivers, none of the framework's code."""

import json
import logging
import sqlite3
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from threading import Event
from typing import Any

import pika
from sqlalchemy import Connection, create_engine, text

from storm.attack.files import SENDS, lines
from storm.oracle.evidence import Effect, Letter, Note, Sent
from storm.oracle.rocketmq_reader import Reader

REASON, ATTEMPT = "oncemq-reason", "oncemq-attempt"
LADDER = tuple(
    decade * tenths // 10
    for decade in (100, 1000, 10_000)
    for tenths in (10, 12, 15, 20, 25, 30, 40, 50, 60, 80)
)
"""Milliseconds of the group's retry queues on RabbitMQ."""

_SESSIONS = (
    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
)
_LOCKS = """SELECT count(*) FROM pg_locks WHERE pid <> pg_backend_pid()
    AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"""
_THREADS = """SELECT count(*) FROM information_schema.processlist
    WHERE db = database() AND id <> connection_id()"""
_OPEN = """SELECT count(*) FROM information_schema.innodb_trx t
    JOIN information_schema.processlist p ON p.id = t.trx_mysql_thread_id
    WHERE p.db = database() AND p.id <> connection_id()"""
_LEFT_IN_DATABASE = {
    "postgresql": {"sessions": _SESSIONS, "locks": _LOCKS},
    "mysql": {"sessions": _THREADS, "open transactions": _OPEN},
    "sqlite": {},
}
_GONE_WITHIN = 15.0


def sent(folder: Path, messages: Path) -> dict[str, Sent]:
    """Return what was sent, from the list of messages and the publishers' log."""
    attempted: Counter[int] = Counter()
    confirmed: Counter[int] = Counter()
    for word, *numbers in lines(folder / SENDS):
        if word in "ac":
            (attempted if word == "a" else confirmed).update(map(int, numbers))
    found: dict[str, Sent] = {}
    with messages.open() as file:
        for number, line in enumerate(file):
            if not attempted[number]:
                continue
            body = json.loads(line)
            before = found.get(body["id"])
            found[body["id"]] = Sent(
                body["key"],
                body.get("kind", "plain"),
                body.get("step", 0),
                attempted[number] + (before.attempted if before else 0),
                confirmed[number] + (before.confirmed if before else 0),
            )
    return found


def from_database(url: str) -> tuple[list[Effect], list[Note], list[str]]:
    """Return effects, history, and what is left in the database."""
    engine = create_engine(url)
    try:
        with engine.connect() as connection:
            columns = "number, identity, key, attempt, process"
            if engine.dialect.name == "mysql":
                columns = columns.replace("key", "`key`")
            effects = [
                Effect(*row)
                for row in connection.execute(text(f"SELECT {columns} FROM storm_effects ORDER BY number"))
            ]
            notes = [
                Note(_text(row[0]), row[1], _text(row[2]))
                for row in connection.execute(
                    text(
                        "SELECT identity, outcome, reason FROM oncemq_history WHERE outcome <> 'retry' ORDER BY id"
                    )
                )
            ]
        with engine.connect() as connection:
            return effects, notes, list(_left(connection, engine.dialect.name))
    finally:
        engine.dispose()


def _left(connection: Connection, dialect: str) -> Iterator[str]:
    if parked := connection.execute(text("SELECT count(*) FROM oncemq_parked")).scalar_one():
        yield f"{parked} parked messages"
    connection.rollback()
    if dialect == "sqlite":
        # A writer that died with the file's lock would hold this up.
        connection.exec_driver_sql("PRAGMA busy_timeout = 1000")
        connection.exec_driver_sql("BEGIN IMMEDIATE")
        connection.rollback()
    for what, query in _LEFT_IN_DATABASE[dialect].items():
        count, pause = 1, Event()
        for _ in range(int(_GONE_WITHIN / 0.1)):
            # A server needs a moment to see that a process is dead.
            count = connection.execute(text(query)).scalar_one()
            connection.rollback()
            if not count:
                break
            pause.wait(0.1)
        else:
            yield f"{count} {what} in the database"


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def letters(url: str, group: str, topic: str) -> list[Letter]:
    """Return the dead letters."""
    if url.startswith("embedded"):
        dead = _rows(url, "SELECT body, properties FROM oncemq_broker_dead ORDER BY id")
        return [_letter(body, json.loads(properties)[0]) for body, properties in dead]
    if url.startswith("rocketmq"):
        return [_letter(*found) for found in Reader(url).messages(f"%DLQ%{group}")]
    if url.startswith("kafka"):
        reader = _kafka(url)
        return [_letter(*found) for found in reader.messages(reader.names(group, topic).dead)]
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        channel, found = connection.channel(), []
        while True:
            # What is not acknowledged goes back when the connection ends.
            method, properties, body = channel.basic_get(f"{group}.{topic}.dead")
            if method is None:
                return found
            found.append(_letter(body, properties.headers or {}))


def waiting(url: str, group: str, topic: str) -> list[str]:
    """Return what the broker still has for the group; no one may be consuming."""
    if url.startswith("embedded"):
        left = _rows(url, "SELECT state, count(*) FROM oncemq_broker_deliveries GROUP BY state")
        return [f"{count} deliveries in state {state}" for state, count in left]
    if url.startswith("rocketmq"):
        places = (
            topic,
            f"%RETRY%{group}",
            f"%RETRY%{group}_{topic}",
        )  # the last is where a proxy keeps retries
        depths = {place: Reader(url).depth(group, place) for place in places}
        return [f"{count} messages in topic {place}" for place, count in depths.items() if count]
    if url.startswith("kafka"):
        kafka = _kafka(url)
        names = kafka.names(group, topic)
        passed = {
            names.topic: kafka.depth(names.group, names.topic),
            names.retries: kafka.depth(names.retries, names.retries),  # the retries' group has their name
        }
        return [f"{count} messages in topic {place}" for place, count in passed.items() if count]
    queue = f"{group}.{topic}"
    logging.getLogger("pika").setLevel(logging.CRITICAL)  # a queue that is not there is no news
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        return [
            f"{count} messages in queue {name}"
            for name in (queue, *(f"{queue}.retry.{milliseconds}" for milliseconds in LADDER))
            if (count := _depth(connection, name))
        ]


def _kafka(url: str) -> Any:
    # Environments of single drivers of RocketMQ have no client for Kafka.
    from storm.oracle import kafka_reader  # noqa: PLC0415

    return kafka_reader.Reader(url)


def _rows(url: str, query: str) -> list[Any]:
    connection = sqlite3.connect(Path(url.removeprefix("embedded://")))
    try:
        return connection.execute(query).fetchall()
    finally:
        connection.close()


def _depth(connection: Any, queue: str) -> int:
    channel = connection.channel()
    try:
        return int(channel.queue_declare(queue, passive=True).method.message_count)
    except pika.exceptions.ChannelClosedByBroker:
        return 0


def _letter(body: bytes, headers: Mapping[str, Any]) -> Letter:
    identity = json.loads(body)["id"]
    return Letter(identity, str(headers.get(REASON, "")), int(headers.get(ATTEMPT, 0)))


def left_in_folder(folder: Path) -> list[str]:
    """Return what processes should have taken with them."""
    state = folder / ".oncemq"
    return [f"the file {path.name}" for suffix in ("recorder", "alive") for path in state.glob(f"*.{suffix}")]


def suspects(url: str) -> int:
    """Return how many messages are still under suspicion."""
    engine = create_engine(url)
    try:
        with engine.connect() as connection:
            return int(connection.execute(text("SELECT count(*) FROM oncemq_suspects")).scalar_one())
    finally:
        engine.dispose()
