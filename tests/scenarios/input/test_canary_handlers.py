"""Whatever a handler does with a password of the configuration, nothing that leaves the process shows it."""

import json
import logging
import sqlite3
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any, Literal

import pika
import psycopg
import pymysql
import pytest
from prometheus_client import generate_latest
from sqlalchemy import create_engine, make_url, select, text
from sqlalchemy.orm import Session

from oncemq.common.redaction import Redactor
from oncemq.errors import BrokerUnavailable, InfrastructureError, MessageRefused, Reject, Retry
from oncemq.ledger.database.engine import make_engine
from oncemq.ledger.records import history
from oncemq.observe.health import health, readiness
from oncemq.observe.metrics import MetricsObserver
from oncemq.retry.backoff import RetryPolicy
from oncemq.testing.scripted import ScriptedAdapter
from support.apps.program import eventually
from support.engine import make_app, make_consumer, running
from support.hostile.canary import ENCODED, HARD, PASSWORD, assert_unseen, logged

FORMS = {
    "in a URL": f"amqp://user:{PASSWORD}@host:5672/",
    "in a URL, encoded": f"postgresql://user:{ENCODED}@host/db",
    "bare": PASSWORD,
    "bare and hard": HARD,
    "encoded": ENCODED,
    "in a connection string": f"host=db user=x password={PASSWORD} port=1",
}
STYLES: tuple[Literal["console", "json"], ...] = ("console", "json")


class _Ghost:
    """Raises where no one can catch it."""

    def __init__(self, secret: str) -> None:
        self._secret = secret

    def __del__(self) -> None:
        raise RuntimeError(self._secret)


class _Talkative:
    """Shows its secret by its repr."""

    def __init__(self, secret: str) -> None:
        self._secret = secret

    def __repr__(self) -> str:
        return f"Talkative({self._secret!r})"


def _unreachable(secret: str) -> None:
    raise ConnectionError(f"cannot reach {secret}")


def _chained(secret: str) -> None:
    try:
        _unreachable(secret)
    except ConnectionError as error:
        raise RuntimeError("no connection") from error


def _in_context(secret: str) -> None:
    try:
        _unreachable(secret)
    except ConnectionError:
        raise RuntimeError("no connection")  # noqa: B904 - the implicit chain is what is tested


def _noted(secret: str) -> None:
    error = RuntimeError("no connection")
    error.add_note(f"the address was {secret}")
    raise error


def _in_thread(secret: str) -> None:
    thread = threading.Thread(target=_raise(RuntimeError), args=(secret,), name=f"dial-{secret}")
    thread.start()
    thread.join()


def _logs(secret: str) -> None:
    log = logging.getLogger("shop")
    log.info("dialling %s", secret)
    log.warning("dialling", extra={"address": secret, "object": _Talkative(secret)})
    log.error("dialling %r %s", secret, {"password": secret, "list": [secret]})
    log.critical(_Talkative(secret))
    log.error("broken %d", secret)


def _logs_an_error(secret: str) -> None:
    try:
        _unreachable(secret)
    except ConnectionError:
        logging.getLogger("shop").exception("no connection to %s", secret)


def _warns(secret: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.warn(f"cannot reach {secret}", stacklevel=1)


def _haunts(secret: str) -> None:
    ghost = _Ghost(secret)
    del ghost


def _raise(kind: Callable[..., BaseException]) -> Callable[[str], None]:
    def raise_it(secret: str) -> None:
        raise kind(f"cannot reach {secret}")

    return raise_it


def _group(secret: str) -> None:
    raise ExceptionGroup(f"all of {secret}", [RuntimeError(secret), ConnectionError(secret)])


def _dial(secret: str) -> None:
    engine = create_engine(make_url(secret))
    engine.connect()


def _parse(secret: str) -> None:
    json.loads(f"{{{secret}")


ACTS: dict[str, Callable[[str], None]] = {
    **{
        f"{kind.__module__}.{kind.__name__}": _raise(kind)
        for kind in (
            RuntimeError,
            KeyError,
            OSError,
            SystemExit,
            UnicodeError,
            Reject,
            Retry,
            MessageRefused,
            BrokerUnavailable,
            sqlite3.IntegrityError,
            psycopg.errors.CheckViolation,
            pymysql.err.DataError,
            pika.exceptions.AMQPConnectionError,
        )
    },
    "Talkative": lambda secret: _raise(lambda _: RuntimeError(_Talkative(secret)))(""),
    "two arguments": lambda secret: _raise(lambda _: RuntimeError("no", secret))(""),
    "chained": _chained,
    "in context": _in_context,
    "noted": _noted,
    "group": _group,
    "thread": _in_thread,
    "logs": _logs,
    "logs an error": _logs_an_error,
    "warns": _warns,
    "haunts": _haunts,
    "dials": _dial,
    "parses": _parse,
}
BLAMELESS: dict[str, Callable[[str], None]] = {
    f"{kind.__module__}.{kind.__name__}": _raise(kind)
    for kind in (
        InfrastructureError,
        sqlite3.OperationalError,
        psycopg.OperationalError,
        pymysql.err.OperationalError,
    )
}
"""Taken for the database's trouble: no message is charged, so nothing is carried, but much is said."""
SQL: dict[str, Callable[[str, Session], None]] = {
    "statement": lambda secret, session: session.execute(text(f"SELECT * FROM nowhere WHERE a = '{secret}'")),
    "parameter": lambda secret, session: session.execute(
        text("SELECT * FROM nowhere WHERE a = :a"), {"a": secret}
    ),
    "syntax": lambda secret, session: session.execute(text(secret)),
    "flush": lambda secret, session: session.add(history.HistoryRow(*[secret] * 8)),  # type: ignore[arg-type]
}
SETUP = ["statement", "parameter", "syntax"]
"""A missing table is no one's fault either."""
CHARGED = [*ACTS, "flush"]
"""Each of these costs an attempt."""


@dataclass(frozen=True)
class Seen:
    """Everything that came out of one app.

    Args:
        lines: log lines.
        carried: the headers of retries and dead letters, and the history's rows, by the message's key.
        shown: health, metrics, and what else is no one message's.
    """

    lines: str
    carried: dict[str, list[str]]
    shown: str


def _handler(order: dict[str, Any], session: Session) -> None:
    secret = FORMS[order["form"]]
    if order["key"] in SQL:
        SQL[order["key"]](secret, session)
    (ACTS | BLAMELESS).get(order["key"], lambda _: None)(secret)
    raise RuntimeError("the act is over")


def _all_are_charged(adapter: ScriptedAdapter) -> bool:
    return {each.delivery.key for each in [*adapter.dead, *adapter.retried]} >= set(CHARGED)


def _deliver(adapter: ScriptedAdapter, form: str, keys: Sequence[str]) -> None:
    for attempt in (1, 2):
        for key in keys:
            body = json.dumps({"id": f"{key}-{attempt}", "key": key, "form": form}).encode()
            adapter.deliver(body, attempt=attempt)


@cache
def _output(form: str, style: Literal["console", "json"], folder: Path) -> Seen:
    engine, adapter, metrics = (
        make_engine(f"sqlite:///{folder / form}-{style}.db"),
        ScriptedAdapter(),
        MetricsObserver(),
    )
    consumer = make_consumer(
        _handler,
        retry=RetryPolicy(attempts=2, first=timedelta(milliseconds=10)),
        redact=Redactor([PASSWORD, HARD]),
    )
    plan = make_app(adapter, engine, consumer)
    shown = []
    with logged(style, [PASSWORD, HARD]) as stream, running(plan, observers=[metrics]) as app:
        _deliver(adapter, form, CHARGED)
        adapter.wait_until(_all_are_charged, timeout=60)
        # Afterwards, because these stop the consumer.
        _deliver(adapter, form, [*SETUP, *BLAMELESS])
        eventually(lambda: "consumer paused" in stream.getvalue(), "the consumer to pause")
        state = app.state()
        shown += [repr(app), repr(state), json.dumps(health(state, 0.0).as_json())]
        shown += [json.dumps(readiness(state, 0.0).as_json()), metrics.exposition().decode()]
        shown += [repr(plan), repr(consumer), repr(adapter), repr(engine), generate_latest().decode()]
    carried: dict[str, list[str]] = {}
    for each in [*adapter.dead, *adapter.retried]:
        carried.setdefault(each.delivery.key, []).append(repr(dict(each.headers)))
    with engine.connect() as connection:
        for row in connection.execute(select(history.TABLE)):
            carried.setdefault(row.key, []).append(repr(row))
    engine.dispose()
    return Seen(stream.getvalue(), carried, "\n".join(shown))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where the databases of this module lie."""
    yield tmp_path_factory.mktemp("canary")
    _output.cache_clear()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("act", sorted(CHARGED))
@pytest.mark.parametrize("form", FORMS)
def test_a_dead_letter_and_its_history_do_not_show_it(folder: Path, form: str, act: str) -> None:
    """Neither a header nor a row holds what the handler's error holds."""
    seen = _output(form, "json", folder)
    assert seen.carried[act]
    assert_unseen(*seen.carried[act])


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("form", FORMS)
def test_no_log_line_health_or_metric_shows_it(
    folder: Path, form: str, style: Literal["console", "json"], capfd: pytest.CaptureFixture[str]
) -> None:
    """What all these failures together leave in logs, metrics and health, and on stderr, holds no password."""
    seen = _output(form, style, folder)
    assert "the act is over" in seen.lines
    assert_unseen(*seen.lines.splitlines(), *seen.shown.splitlines())
    printed = capfd.readouterr()
    assert_unseen(printed.out, printed.err)
