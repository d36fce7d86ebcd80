"""The app under attack: each message says what happens to its handler, and every effect is a row of its own."""

import contextlib
import os
import resource
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from sqlalchemy import String, insert, select, text, update
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from oncemq import Envelope, Reject, Retry
from storm.attack.files import TRIED, Trace


class Base(DeclarativeBase):
    """The tables of the app."""


class Effect(Base):
    """One effect; no constraint hides a second one."""

    __tablename__ = "storm_effects"

    number: Mapped[int] = mapped_column(primary_key=True)
    identity: Mapped[str] = mapped_column(String(120))
    key: Mapped[str] = mapped_column(String(120))
    attempt: Mapped[int]
    process: Mapped[int]


class Event(BaseModel):
    """What a message says; `kind` names what its handler does."""

    id: str
    key: str
    kind: str = "plain"
    state: str = ""


class Surroundings:
    """What the process around the handler lends it.

    Attributes:
        point: told how far the handler has come.
        tried: where a line is written when a handler begins.
        pause: seconds that a plain handler takes.
        down: the file whose presence means that a dependency is down.
    """

    def __init__(self) -> None:
        folder = Path(os.environ.get("STORM_FOLDER", "."))
        self.point: Callable[[str], None] = lambda _: None
        self.tried = Trace(folder / TRIED)
        self.pause = float(os.environ.get("STORM_PAUSE", "0"))
        self.down = folder / "down"


@dataclass(frozen=True, slots=True)
class _Setting:
    """Statements that write and read a setting of a connection."""

    write: str
    read: str


_USERS = _Setting("SET @storm_tenant = :value", "SELECT @storm_tenant")
_SETTINGS = {
    "postgresql": _Setting(
        "SELECT set_config('storm.tenant', :value, true)", "SELECT current_setting('storm.tenant', true)"
    ),
    "mysql": _USERS,
    "mariadb": _USERS,
}

around: list[Surroundings] = []


def surroundings() -> Surroundings:
    """Return this process's own, made when first asked for: a forked child has another folder."""
    if not around:
        around.append(Surroundings())
    return around[0]


def apply(event: Event, envelope: Envelope, session: Session) -> None:
    """Have the effect, or the disaster, that the message asks for."""
    here = surroundings()
    here.tried.write(os.getpid(), event.id, envelope.attempt)
    here.point("in-handler")
    disaster = _DISASTERS.get(event.kind)
    if disaster is not None:
        disaster(event, envelope, session)
    values = {
        "identity": event.id,
        "key": event.key,
        "attempt": envelope.attempt,
        "process": os.getpid(),
    }
    _WAYS.get(event.kind, merely_adds)(session, values)
    if here.pause:
        time.sleep(here.pause)
    here.point("handler-wrote")


def merely_adds(session: Session, values: dict[str, Any]) -> None:
    """Leave the effect to the flush."""
    session.add(Effect(**values))


def sets(session: Session, values: dict[str, Any]) -> None:
    """Have the effect by Core, with a key that goes through a setting of the connection."""
    key = values["key"]
    setting = _SETTINGS.get(session.get_bind().dialect.name)
    if setting is not None:
        session.execute(text(setting.write), {"value": key})
        key = session.execute(text(setting.read)).scalar_one()
    session.execute(insert(Effect).values({**values, "key": key}))


def mixes(session: Session, values: dict[str, Any]) -> None:
    """Have the effect by ORM, change it by Core and read it back; no setting of another message may be seen."""
    setting = _SETTINGS.get(session.get_bind().dialect.name)
    if setting is not None and (seen := session.execute(text(setting.read)).scalar_one()):
        raise RuntimeError(f"this connection has another message's setting: {seen}")
    session.add(Effect(**{**values, "attempt": 0}))
    own = Effect.identity == values["identity"]
    changed = session.execute(update(Effect).where(own).values(attempt=values["attempt"]))
    found = session.scalars(select(Effect.attempt).where(own)).all()
    if getattr(changed, "rowcount", 0) != 1 or found != [values["attempt"]]:
        raise RuntimeError(f"the statement did not find the handler's own row: {found}")


def flaky(_event: Event, envelope: Envelope, _session: Session) -> None:
    """Ask for a retry the first time."""
    if envelope.attempt == 1:
        raise Retry("not yet")


def transient(_event: Event, envelope: Envelope, _session: Session) -> None:
    """Fail the first time."""
    if envelope.attempt == 1:
        raise TimeoutError("not this time")


def reject(_event: Event, _envelope: Envelope, _session: Session) -> None:
    """Ask for a dead letter."""
    raise Reject("no such thing")


def raises(_event: Event, _envelope: Envelope, _session: Session) -> None:
    """Always fail."""
    raise ValueError("poison")


def writes(event: Event, envelope: Envelope, session: Session) -> None:
    """Fail after the effect has reached the database."""
    session.add(Effect(identity=event.id, key=event.key, attempt=envelope.attempt, process=os.getpid()))
    session.flush()
    raise ValueError("poison after writing")


def swallows(_event: Event, _envelope: Envelope, session: Session) -> None:
    """Hide an error of the database, and roll back what other messages may share."""
    with contextlib.suppress(Exception):
        session.execute(text("INSERT INTO storm_effects (identity) VALUES (NULL)"))
    session.rollback()


def kills(_event: Event, _envelope: Envelope, _session: Session) -> None:
    """End the process."""
    os.kill(os.getpid(), signal.SIGKILL)


def hangs(_event: Event, _envelope: Envelope, _session: Session) -> None:
    """Never return."""
    while True:
        time.sleep(60)


def eats(_event: Event, _envelope: Envelope, _session: Session) -> None:
    """Eat more memory than the process may have."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used + (256 << 20), hard))
    try:
        eaten = []
        while True:
            eaten.append(bytearray(16 << 20))
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def depends(_event: Event, _envelope: Envelope, _session: Session) -> None:
    """Fail while the dependency is down."""
    if surroundings().down.exists():
        raise ConnectionError("the dependency is down")


_DISASTERS = {
    function.__name__: function
    for function in (flaky, transient, reject, raises, writes, swallows, kills, hangs, eats, depends)
}
_WAYS: dict[str, Callable[[Session, dict[str, Any]], None]] = {"sets": sets, "mixes": mixes}
"""How the effect is had, where not by merely adding it."""
