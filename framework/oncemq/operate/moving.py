"""Moves what the ledger has of a consumer into the user's table that its strategy reads now."""

from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

from sqlalchemy import Engine

from oncemq.contracts.moving import LedgerMove, MovedBatch, MoveRules
from oncemq.engine.group_ownership import ledger_moves
from oncemq.engine.plan import AppPlan
from oncemq.errors import ConfigError
from oncemq.ledger.coordination import workers
from oncemq.ledger.database.connect import READ_ONLY, place
from oncemq.ledger.database.server_clock import server_time
from oncemq.operate.configuration.history import engine_of

SHOWN: Final = 10
"""So many obstacles are named; the others are counted."""
_SEEN_LATELY: Final = timedelta(seconds=25)
"""A process that runs is seen every ten seconds."""


@dataclass(slots=True)
class Count:
    """What came of the rows.

    Args:
        rows: so many there are.
        equal: so many were in the user's table before.
        written: so many were written there.
        inserted: for so many a row was inserted.
        kept: so many differ, and the user's stays.
        given_up: so many have no row there, and are given up.
        obstacles: so many could not be copied.
        examples: why, for the first of them.
    """

    rows: int = 0
    equal: int = 0
    written: int = 0
    inserted: int = 0
    kept: int = 0
    given_up: int = 0
    obstacles: int = 0
    examples: list[str] = field(default_factory=list)

    def add(self, batch: MovedBatch) -> None:
        """Add a batch."""
        self.equal += batch.equal
        self.written += batch.written
        self.inserted += batch.inserted
        self.kept += batch.kept
        self.given_up += batch.given_up
        self.obstacles += len(batch.obstacles)
        self.examples += batch.obstacles[: SHOWN - len(self.examples)]
        self.rows += (
            batch.equal + batch.written + batch.inserted + batch.kept + batch.given_up + len(batch.obstacles)
        )


@dataclass(frozen=True, slots=True)
class Move:
    """What is to be moved on one database.

    Args:
        plan: the app.
        engine: the database.
        what: of the strategy.
    """

    plan: AppPlan
    engine: Engine
    what: LedgerMove

    def preview(self, rules: MoveRules) -> Count:
        """Return what would come of it; everything is tried, and rolled back."""
        return self._copied(rules, keep=False)

    def copy(self, rules: MoveRules) -> Count:
        """Copy all rows in small transactions; what a killed command has copied is found equal."""
        return self._copied(rules, keep=True)

    def finish(self, rules: MoveRules) -> int:
        """Delete the ledger's rows once every one of them is in the user's table, in one transaction; returns how many.

        Raises:
            ConfigError: the app runs again, or a row has changed since it was copied.
        """
        with self.engine.begin() as connection:
            count, after = Count(), ""
            while (batch := self.what.copy(connection, after, rules)).last is not None:
                count.add(batch)
                after = batch.last
            refuse_running(self.plan)
            if count.obstacles or count.written or count.inserted:
                changed = f"{self.what.what}s have changed in {place(self.engine)} meanwhile"
                raise ConfigError(
                    [
                        f"{changed}, and nothing was deleted: stop what changes them, then run this command again"
                    ]
                )
            return self.what.clear(connection)

    def _copied(self, rules: MoveRules, *, keep: bool) -> Count:
        count, after = Count(), ""
        while True:
            with self.engine.connect() as connection:
                batch = self.what.copy(connection, after, rules)
                if batch.last is None:
                    return count
                if keep:
                    connection.commit()
                else:
                    connection.rollback()
            count.add(batch)
            after = batch.last


def moves_of(plan: AppPlan, name: str) -> list[Move]:
    """Return what the ledger may have of a consumer that belongs into a table of the user's, for each database.

    Raises:
        ConfigError: the app has no such consumer, or its strategies keep all they know in the ledger.
    """
    engine_of(plan)
    consumer = next((each for each in plan.consumers if name in (each.name, each.called)), None)
    if consumer is None:
        known = ", ".join(each.name for each in plan.consumers)
        raise ConfigError([f"there is no consumer {name!r}: the app has {known}"])
    found = [Move(plan, engine, what) for engine, what in ledger_moves(plan, consumer)]
    if not found:
        advice = (
            "write the new configuration first, such as state_machine with entity: {table: …, key: …, state: …}, or "
            "optimistic_lock in the place of sequence"
        )
        why = "none of its strategies reads a table of yours instead of the ledger"
        raise ConfigError([f"consumer {name}: {why} – {advice}"])
    return found


def refuse_running(plan: AppPlan) -> None:
    """Refuse to move anything while a process of the app runs.

    Raises:
        ConfigError: it does, or did a moment ago.
    """
    with engine_of(plan).connect().execution_options(**{READ_ONLY: True}) as connection:
        now = server_time(connection)
        running = workers.since_before(connection, plan.name, now, seen_since=now - _SEEN_LATELY)
    if running:
        names = ", ".join(f"{each.host} (pid {each.pid})" for each in running)
        why = "a process that still reads the ledger would apply messages again"
        late = f"one that was killed counts for {_SEEN_LATELY.seconds} seconds"
        raise ConfigError([f"{plan.name} runs: {names} – stop it first: {why}; {late}"])
