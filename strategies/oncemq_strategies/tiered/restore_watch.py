"""Detects a database restore: Redis remembers a moment of the ledger that the ledger has not had."""

import logging
from datetime import datetime, timedelta

from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError

from oncemq.ledger import restore_detection, schema
from oncemq.redis.call import Call
from oncemq.redis.faults import Failure
from oncemq_strategies.common.redis_circuit import Circuit
from oncemq_strategies.common.redis_marks import key_in_redis

_log = logging.getLogger("oncemq")


class RestoreWatch:
    """Compares a ledger with its last moment known to Redis, before its marks are trusted.

    A moment in Redis was committed in the ledger first, so a ledger that is behind it has lost commits: it was
    restored from a backup, or a replica without them took over. A failover that lost nothing does not count.

    Args:
        circuit: of the app's Redis.
        consumer: the ledger scope.
        keep: how long Redis remembers the moment; at least as long as marks.
    """

    def __init__(self, circuit: Circuit, consumer: str, keep: timedelta) -> None:
        self._circuit = circuit
        self._consumer = consumer
        self._milliseconds = max(1, round(2 * keep.total_seconds() * 1000))

    def birth(self, engine: Engine) -> str | None:
        """Return the ledger's birth as stored in marks, another one after a restore; None if unknown.

        Raises:
            SQLAlchemyError: the database does not answer.
        """
        born = schema.birth(engine)
        if not born:
            return born
        # Named like a mark, for accounts restricted to those; no mark has this name.
        name = key_in_redis("mark", f"{self._consumer}:{born}-pulse", "")
        answers = self._circuit.ask(lambda: [Call(name, ("GET", name))])
        if answers is None or isinstance(answers[0], Failure):
            return None
        try:
            with engine.begin() as connection:
                moment, went_back = restore_detection.advance(connection, name, _moment(answers[0]))
                if went_back:
                    schema.note_restored(connection)
        except SQLAlchemyError:
            return None  # Redis is read-only, or cannot be written now
        if went_back:
            _log.warning(
                "the database of %s went back in time (a restore, or a fail-over that lost commits): older marks and "
                "flags are no longer trusted",
                self._consumer,
            )
            return self.birth(engine)
        self._circuit.ask(lambda: [Call(name, ("SET", name, moment.isoformat(), "PX", self._milliseconds))])
        return born


def _moment(answer: bytes | str | None) -> datetime | None:
    """Return the remembered moment; None if Redis has none, or holds there what another program wrote."""
    try:
        moment = datetime.fromisoformat(answer.decode() if isinstance(answer, bytes) else answer or "")
    except ValueError:
        return None
    return moment if moment.tzinfo is not None else None
