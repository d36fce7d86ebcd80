"""Follows the requests to reload in the ledger, and keeps this process in the list of those that answer them."""

import os
import threading
import time
from datetime import timedelta
from typing import Final

import structlog
from sqlalchemy import Connection, Engine
from sqlalchemy.exc import SQLAlchemyError

from oncemq.cli.reload.reloader import Reloader
from oncemq.ledger.coordination import reloads
from oncemq.ledger.coordination.reloads import Request
from oncemq.ledger.database.connect import glance
from oncemq.ledger.database.server_clock import server_time
from oncemq.operate.configuration.history import Member, Occasion

READ_EVERY: Final = 2.0
"""Seconds between two looks into the ledger: one statement."""
_SEEN_EVERY: Final = 10.0
_MARGIN: Final = 1.0
"""Seconds by which a request may be older than the text that a process has read, and is obeyed all the same."""
_SIGN_OFF_WITHIN: Final = 2.0


class LedgerRequests:
    """Has this process reload when an operator asks all of the app's.

    Args:
        engine: the app's database.
        app: the app's name.
        member: this process.
        reloader: obeys.
        texts_read: when the text that it runs was read, by `time.monotonic`; earlier requests are met by it.
    """

    def __init__(
        self, engine: Engine, app: str, member: Member, reloader: Reloader, texts_read: float
    ) -> None:
        self._engine = engine
        self._app = app
        self._member = member
        self._reloader = reloader
        self._texts_read = texts_read
        self._signed_on = False
        self._seen_at = 0.0
        self._version = ""
        self._met: Request | None = None
        self._failing = False
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="oncemq-reload-requests", daemon=True)
        self._log = structlog.get_logger("oncemq")

    def start(self) -> None:
        """Follow in a thread of its own."""
        self._thread.start()

    def stop(self) -> None:
        """Sign off, if the database answers soon."""
        self._ending.set()
        self._thread.join(_SIGN_OFF_WITHIN)

    def _follow(self) -> None:
        while True:
            try:
                self._look()
                self._failing = False
            except SQLAlchemyError as error:
                self._tell(error)
            except Exception:
                self._log.exception("following requests to reload failed")
            if self._ending.wait(READ_EVERY):
                break
        if self._signed_on:
            try:
                with self._engine.begin() as connection:
                    reloads.sign_off(connection, self._app, self._member.name)
            except SQLAlchemyError as error:
                self._tell(error)

    def _look(self) -> None:
        if not self._signed_on:
            with self._engine.begin() as connection:
                self._begin(connection)
            self._signed_on = True
        elif time.monotonic() - self._seen_at >= _SEEN_EVERY or self._version != self._reloader.version:
            with self._engine.begin() as connection:
                self._beat(connection)
        with glance(self._engine) as connection:
            request = reloads.latest(connection, self._app)
        if request is not None and request != self._met:
            self._met = request
            self._reloader.ask(Occasion("oncemq reload", request.who, request.why, request.number))

    def _begin(self, connection: Connection) -> None:
        self._sign_on(connection)
        request = reloads.latest(connection, self._app)
        age = timedelta(seconds=time.monotonic() - self._texts_read + _MARGIN)
        if request is not None and request.asked_at < server_time(connection) - age:
            self._met = request

    def _beat(self, connection: Connection) -> None:
        version = self._reloader.version
        if not reloads.seen(connection, self._app, self._member.name, version):
            self._sign_on(connection)
        self._seen_at, self._version = time.monotonic(), version

    def _sign_on(self, connection: Connection) -> None:
        us, version = self._member, self._reloader.version
        for other in reloads.supervisors(connection, self._app):
            # It was killed here; else an operator would wait for its answer.
            if other.host == us.host and other.process != us.name and not _runs(other.pid, us.pid):
                reloads.sign_off(connection, self._app, other.process)
        reloads.sign_on(connection, self._app, us.name, us.host, us.pid, version)
        self._seen_at, self._version = time.monotonic(), version

    def _tell(self, error: SQLAlchemyError) -> None:
        """Say it once per outage: the workers say that the database is away."""
        if not self._failing:
            self._failing = True
            words = f"{type(error).__name__}: {error}"
            self._log.warning("requests to reload cannot be read now", error=words)


def _runs(pid: int, ours: int) -> bool:
    """Return whether a process of this machine may still run; a container's next process has the number of the one before."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return pid != ours
