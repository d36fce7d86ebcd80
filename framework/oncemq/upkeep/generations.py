"""Background work for consumers whose records are in generations: rotation, expiry, compaction."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from threading import Thread
from typing import Final

from sqlalchemy import Engine

from oncemq.contracts.strategy import UpkeepTask
from oncemq.errors import LedgerError
from oncemq.ledger.database.connect import READ_ONLY, place
from oncemq.ledger.database.server_clock import server_time
from oncemq.ledger.generations import rotation
from oncemq.ledger.generations.registry import generations_of

EVERY: Final = timedelta(minutes=1)


def begin_all(engine: Engine, consumers: Iterable[str]) -> list[str]:
    """Give each of these consumers its first generation where it has none; returns a line for each that had none."""
    return [
        f"the first generation of {scope}" for scope in sorted(consumers) if rotation.begin(engine, scope)
    ]


def ensure_begun(engines: Sequence[Engine], consumers: Iterable[str]) -> None:
    """Check that each of these consumers has an open generation, and that this account may rotate.

    Raises:
        LedgerError: it has none, or the account may not; says what to do.
    """
    for engine in engines if (wanted := sorted(consumers)) else ():
        with engine.connect().execution_options(**{READ_ONLY: True}) as connection:
            for scope in wanted:
                if not generations_of(connection, scope):
                    raise LedgerError(
                        f"{scope} has no generations in {place(engine)} yet: stop the app's other processes, run "
                        "`oncemq tables create`, and start all with `ledger: {generations: …}`"
                    )
            if not rotation.may_rotate(connection):
                raise LedgerError(
                    f"this account may not create tables in {place(engine)}, or does not own the ledger's, as `generations` "
                    "needs: run the app with the account that owns the tables oncemq_…, or remove `ledger`"
                )


def generation_tasks(consumers: Mapping[str, timedelta], keep: Mapping[str, timedelta]) -> list[UpkeepTask]:
    """Return one task per consumer.

    Args:
        consumers: how long a generation is open, by ledger scope.
        keep: how long records are kept, by ledger scope.
    """
    return [
        UpkeepTask(f"generations {scope}", EVERY, GenerationKeeper(scope, every, keep[scope]))
        for scope, every in sorted(consumers.items())
    ]


class GenerationKeeper:
    """Rotates, retires, drops and compacts one consumer's generations.

    A rotation that units keep waiting is tried again with a longer wait, a few times a minute.

    Args:
        scope: the consumer's ledger scope.
        every: how long a generation is open.
        keep: how long records are kept.
    """

    def __init__(self, scope: str, every: timedelta, keep: timedelta) -> None:
        self._scope = scope
        self._every = every
        self._keep = keep
        self._wait = rotation.SHORTEST_WAIT
        self._compacting: Thread | None = None
        self._failed: Exception | None = None

    def __call__(self, engine: Engine) -> bool:
        """Run one step; returns whether there is more."""
        rotated = rotation.rotate(engine, self._scope, self._every, wait=self._wait)
        rotation.retire(engine, self._scope, self._keep)
        rotation.drop_retired(engine, self._scope)
        if rotated is None and self._wait < rotation.LONGEST_WAIT:
            self._wait *= 2
            return True
        self._wait = rotation.SHORTEST_WAIT
        if rotated is None:
            self._insist(engine)
        self._compact(engine)
        return False

    def _compact(self, engine: Engine) -> None:
        """Rebuild aside what was sealed: of a hundred million records this takes minutes, and other tasks are due."""
        if self._compacting is not None and self._compacting.is_alive():
            return
        if self._failed is not None:
            error, self._failed = self._failed, None
            raise error
        if rotation.not_compact(engine, self._scope):
            self._compacting = Thread(
                target=self._rebuild, args=(engine,), name="oncemq-compact", daemon=True
            )
            self._compacting.start()

    def _rebuild(self, engine: Engine) -> None:
        try:
            rotation.compact(engine, self._scope)
        except Exception as error:
            self._failed = error  # raised at the next step, where failures of upkeep are logged

    def _insist(self, engine: Engine) -> None:
        with engine.connect() as connection:
            newest = generations_of(connection, self._scope)[0]
            late = server_time(connection) - newest.opened_at > 2 * self._every
        if late:
            raise LedgerError(
                f"the generation {newest.table} of {self._scope} has been open for more than two periods: transactions of "
                "the consumer last so long that no rotation comes between them; nothing is lost, but the table grows"
            )
