"""Records what arrives at a consumer of a running app, through its ledger, into a file."""

import gzip
import json
import os
import secrets
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from hashlib import blake2b
from pathlib import Path
from typing import IO, Any, Final

from sqlalchemy import URL, Engine

from oncemq import __version__
from oncemq.common.redaction import Redactor
from oncemq.config.build.plan import LoadedApp
from oncemq.config.build.shared_parts import written
from oncemq.config.model.consumer_settings import ConsumerSettings
from oncemq.engine.plan import AppPlan, ConsumerPlan
from oncemq.engine.recording.lines import DEAD, FORMAT, MAGIC, MASKED, Wanted
from oncemq.engine.recording.recorder import READ_EVERY
from oncemq.errors import ConfigError, LedgerError
from oncemq.ledger.coordination import recordings
from oncemq.ledger.database.connect import READ_ONLY
from oncemq.operate.auditing import Operator, Trail

_FETCH_EVERY: Final = 1.0
_PARTS: Final = 20
LAST_WAIT: Final = READ_EVERY + 3.0
"""Seconds in which every process has noticed that the recording is over, and has stored what it noted last."""
_SALT_BYTES: Final = 16
_DEAD: Final = f'"outcome":"{DEAD}"'


@dataclass
class Recorded:
    """What was recorded.

    Attributes:
        arrivals: lines in the file.
        lost: arrivals for which a process had no room.
        unmatched: masks that have not matched anything.
    """

    arrivals: int = 0
    lost: int = 0
    unmatched: set[str] = field(default_factory=set)


def header_of(loaded: LoadedApp, consumer: ConsumerPlan, wanted: Wanted) -> dict[str, Any]:
    """Return the first line of a recording: what was recorded, and under which configuration."""
    settled = next(each for each in loaded.consumers if each.name == consumer.name)
    declared = _declared(settled)
    text = Redactor(loaded.secrets)(json.dumps(declared, sort_keys=True, default=str))
    engine = loaded.plan.engine
    return {
        MAGIC: FORMAT,
        "oncemq": __version__,
        "app": loaded.plan.name,
        "consumer": consumer.name,
        "scope": consumer.scope,
        "database": "" if engine is None else mark_of(engine.url),
        "configuration": blake2b(text.encode(), digest_size=8).hexdigest(),
        "declared": json.loads(text),
        "bodies": wanted.bodies,
        "fields": list(wanted.fields),
        "masks": list(wanted.masks),
        "headers": list(wanted.headers),
    }


def _declared(settled: ConsumerSettings) -> Mapping[str, Any]:
    return {
        "topic": settled.topic,
        "key": settled.key,
        "version": settled.version,
        "identity": list(settled.identity),
        "format": settled.format,
        "effects": settled.effects.value,
        "strategies": [[each.name, written(each.options)] for each in settled.strategies],
    }


def mark_of(url: URL) -> str:
    """Return a mark of a database, the same for all users of it."""
    port = f":{url.port}" if url.port is not None else ""
    place = f"{url.get_backend_name()} {url.host or ''}{port} {url.database or ''}"
    return blake2b(place.encode(), digest_size=8).hexdigest()


def record(
    loaded: LoadedApp,
    consumer: ConsumerPlan,
    lasts: timedelta,
    wanted: Wanted,
    file: Path,
    operator: Operator,
    tell: Callable[[Recorded], None],
    sleep: Callable[[float], object] = time.sleep,
) -> Recorded:
    """Record until `lasts` has passed or the caller is interrupted; returns what was recorded.

    Raises:
        ConfigError: the app has no database, or the file exists.
        LedgerError: another recording of this consumer goes on, or ours was removed.
    """
    plan, found = loaded.plan, Recorded(unmatched=set(wanted.masks))
    engine = _ledger(plan)
    wanted = replace(wanted, salt=secrets.token_hex(_SALT_BYTES))
    with _created(file) as stream:
        stream.write(json.dumps(header_of(loaded, consumer, wanted)) + "\n")
        recording = _begin(plan, engine, consumer, lasts, wanted, operator)
        try:
            _follow(engine, recording, lasts, stream, found, wanted, tell, sleep)
        except KeyboardInterrupt:
            pass
        finally:
            _finish(engine, recording, stream, found, wanted, sleep)
        stream.write(json.dumps({"end": True, "arrivals": found.arrivals, "lost": found.lost}) + "\n")
    return found


def _begin(
    plan: AppPlan,
    engine: Engine,
    consumer: ConsumerPlan,
    lasts: timedelta,
    wanted: Wanted,
    operator: Operator,
) -> str:
    recording, trail = secrets.token_hex(8), Trail(plan, operator, "record")
    with engine.begin() as connection:
        until = recordings.begin(connection, recording, consumer.scope, lasts, wanted.as_json())
        if until is None:
            raise LedgerError(
                f"consumer {consumer.name!r} is being recorded already: wait for the end of that recording"
            )
        bodies = "with bodies" if wanted.bodies else "without bodies"
        trail.note(connection, consumer.scope, {}, f"{bodies}, until {until.isoformat(timespec='seconds')}")
    return recording


def _follow(
    engine: Engine,
    recording: str,
    lasts: timedelta,
    stream: IO[str],
    found: Recorded,
    wanted: Wanted,
    tell: Callable[[Recorded], None],
    sleep: Callable[[float], object],
) -> None:
    until = time.monotonic() + lasts.total_seconds()
    while (left := until - time.monotonic()) > 0:
        sleep(min(left, _FETCH_EVERY))
        with engine.begin() as connection:
            if not recordings.renew(connection, recording):
                raise LedgerError(
                    "the recording was removed from the ledger: what came until then is in the file"
                )
        _fetch(engine, recording, stream, found, wanted)
        tell(found)


def _finish(
    engine: Engine,
    recording: str,
    stream: IO[str],
    found: Recorded,
    wanted: Wanted,
    sleep: Callable[[float], object],
) -> None:
    """Let the workers stop, fetch what they have noted last, and leave nothing behind."""
    with engine.begin() as connection:
        recordings.end(connection, recording)
    try:
        sleep(LAST_WAIT)
        _fetch(engine, recording, stream, found, wanted)
    finally:
        with engine.begin() as connection:
            recordings.remove(connection, recording)


def _fetch(engine: Engine, recording: str, stream: IO[str], found: Recorded, wanted: Wanted) -> None:
    while True:
        with engine.connect().execution_options(**{READ_ONLY: True}) as connection:
            parts = recordings.fetch(connection, recording, _PARTS)
        if not parts:
            return
        for _, lines, lost in parts:
            text = zlib.decompress(lines).decode()
            stream.write(text)
            found.arrivals += text.count("\n") - text.count(_DEAD)
            found.lost += lost
            _match(text, found, wanted)
        stream.flush()
        with engine.begin() as connection:
            recordings.forget(connection, [number for number, _, _ in parts])


def _match(text: str, found: Recorded, wanted: Wanted) -> None:
    """Note which masks have matched, until all have."""
    if not found.unmatched or MASKED not in text:
        return
    for line in text.splitlines():
        body = json.loads(line).get("body")
        found.unmatched -= {path for path in wanted.masks if _is_masked(body, path.split("."))}
        if not found.unmatched:
            return


def _is_masked(value: Any, path: list[str]) -> bool:
    if isinstance(value, list):
        return any(_is_masked(each, path) for each in value)
    if not path:
        return isinstance(value, str) and value.startswith(MASKED)
    return isinstance(value, dict) and path[0] in value and _is_masked(value[path[0]], path[1:])


@contextmanager
def _created(file: Path) -> Iterator[IO[str]]:
    """Open a new file that only this user can read; a name that ends in `.gz` is compressed."""
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        raise ConfigError([f"{file} exists: name another file, or remove it"]) from None
    except OSError as error:
        raise ConfigError([f"{file} cannot be written: {error.strerror}"]) from error
    with os.fdopen(descriptor, "wb") as raw:
        if file.suffix == ".gz":
            with gzip.open(raw, "wt", encoding="utf-8", compresslevel=6) as stream:
                yield stream
        else:
            with os.fdopen(os.dup(raw.fileno()), "w", encoding="utf-8") as stream:
                yield stream


def _ledger(plan: AppPlan) -> Engine:
    if plan.engine is None:
        raise ConfigError(["the app has no database, through which its processes could be asked to record"])
    return plan.engine
