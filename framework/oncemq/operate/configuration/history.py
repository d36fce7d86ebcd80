"""Writes the history of an app's configurations, and reads it."""

import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Final
from uuid import uuid4

import structlog
from sqlalchemy import Engine
from sqlalchemy.exc import IntegrityError, SQLAlchemyError

from oncemq.common.redaction import Redactor
from oncemq.config.source.masking import masked, secrets_of, version_of
from oncemq.engine.plan import AppPlan
from oncemq.errors import ConfigError
from oncemq.ledger.database.connect import READ_ONLY
from oncemq.ledger.records import configurations
from oncemq.ledger.records.audit import caller
from oncemq.ledger.records.configurations import Configuration, Note

IN_PYTHON: Final = "in Python"
"""The version of an app that is declared in Python."""
NO_DATABASE: Final = "the app has no database, so there is no history of its configurations"
_TRIES = 3


@dataclass(frozen=True, slots=True)
class Member:
    """A process of `oncemq run`.

    Args:
        host: the machine's name.
        pid: its process id.
        name: unique in the app.
    """

    host: str
    pid: int
    name: str

    @classmethod
    def this(cls) -> "Member":
        """Return this process, under a new name."""
        host, pid = socket.gethostname(), os.getpid()
        return cls(host, pid, f"{host}-{pid}-{uuid4().hex[:8]}")


@dataclass(frozen=True, slots=True)
class Occasion:
    """Why a configuration is taken over.

    Args:
        kind: `start`, `SIGHUP` or `oncemq reload`.
        who: the person, as far as known; None = the user of this process.
        why: the reason given; may be empty.
        request: the number of the operator's request in the ledger; None = it was not asked for there.
    """

    kind: str
    who: str | None = None
    why: str = ""
    request: int | None = None

    def __str__(self) -> str:
        return self.kind if self.who is None else f"{self.kind} by {self.who}"


class History:
    """Notes what becomes of configurations in this process; a ledger that is away holds up nothing.

    Args:
        engine: the app's database.
        app: the app's name.
        member: this process.
    """

    def __init__(self, engine: Engine, app: str, member: Member) -> None:
        self._engine = engine
        self._app = app
        self._member = member
        self._log = structlog.get_logger("oncemq")

    def note(
        self,
        texts: Mapping[Path, bytes],
        occasion: Occasion,
        outcome: str,
        problems: Sequence[str] = (),
    ) -> None:
        """Store what became of a configuration.

        Args:
            texts: of its files; none = the app is declared in Python, or no file could be read.
            occasion: why it was to be taken over.
            outcome: a constant of `oncemq.ledger.records.configurations`.
            problems: why it was not.
        """
        redact = Redactor(secrets_of(texts, os.environ))
        note = Note(
            app=self._app,
            version=version(texts),
            host=self._member.host,
            process=self._member.name,
            occasion=occasion.kind,
            who=occasion.who or caller(),
            why=occasion.why,
            request=occasion.request,
            outcome=outcome,
            problems=tuple(map(redact, problems)),
        )
        # What is no YAML may hold a secret at any place.
        shown = [each if each.exact else replace(each, text="") for each in masked(texts, os.environ)]
        for left in reversed(range(_TRIES)):
            try:
                with self._engine.begin() as connection:
                    configurations.add(connection, note, shown)
            except SQLAlchemyError as error:
                if isinstance(error, IntegrityError) and left:
                    continue  # another process has stored the same text meanwhile
                words = f"{type(error).__name__}: {error}"
                self._log.warning("the history of configurations was not written", error=words)
            return


def version(texts: Mapping[Path, bytes] | None) -> str:
    """Return the name of a configuration's text; the same text has the same one in every process and on every machine."""
    return version_of(texts) if texts else IN_PYTHON


def listed(plan: AppPlan, limit: int, since: datetime | None = None) -> list[Note]:
    """Return what became of an app's configurations, newest first.

    Raises:
        ConfigError: the app has no database.
    """
    with engine_of(plan).connect().execution_options(**{READ_ONLY: True}) as connection:
        return configurations.notes(connection, plan.name, limit, since=since)


def kept(plan: AppPlan) -> list[Configuration]:
    """Return the configurations whose texts are kept, newest first.

    Raises:
        ConfigError: the app has no database.
    """
    with engine_of(plan).connect().execution_options(**{READ_ONLY: True}) as connection:
        return configurations.kept(connection, plan.name)


def engine_of(plan: AppPlan) -> Engine:
    """Return the database of the history.

    Raises:
        ConfigError: the app has none.
    """
    if plan.engine is None:
        raise ConfigError([NO_DATABASE])
    return plan.engine
