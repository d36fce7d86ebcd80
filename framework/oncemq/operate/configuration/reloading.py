"""Asks all processes of an app, on any machine, to reload, and follows their answers."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from oncemq.engine.plan import AppPlan
from oncemq.ledger.coordination import reloads, workers
from oncemq.ledger.coordination.reloads import Supervisor
from oncemq.ledger.coordination.workers import Worker
from oncemq.ledger.database.connect import READ_ONLY
from oncemq.ledger.database.server_clock import server_time
from oncemq.ledger.records import configurations
from oncemq.ledger.records.configurations import TAKEN_OVER
from oncemq.operate.auditing import Operator, Trail
from oncemq.operate.configuration.history import engine_of

WAITING, ENDED, SILENT = "waiting", "ended", "silent"
"""States of a process that has not answered; silent: the ledger has not seen it for long."""
_SEEN_LATELY: Final = timedelta(seconds=25)
"""A process that runs is seen every ten seconds."""
_MOST_ANSWERS: Final = 10_000


@dataclass(frozen=True, slots=True)
class Answer:
    """What a process makes of a request to reload.

    Args:
        process: the process.
        state: `taken over`, `refused` or `given up`; without an answer `waiting`, `ended` or `silent`.
        problems: why it was not taken over.
        version: of the configuration that the process was to take over; empty without an answer.
    """

    process: Supervisor
    state: str
    problems: tuple[str, ...] = ()
    version: str = ""

    @property
    def ok(self) -> bool:
        """Whether the process runs the new configuration."""
        return self.state == TAKEN_OVER


@dataclass(frozen=True, slots=True)
class Asked:
    """A request that was made.

    Args:
        plan: the app.
        number: of the request.
        at: when, aware, by the database's clock.
        processes: those that ran then.
    """

    plan: AppPlan
    number: int
    at: datetime
    processes: Sequence[Supervisor]

    def answers(self) -> Iterator[Answer]:
        """Yield how far each process is, in their order."""
        with engine_of(self.plan).connect().execution_options(**{READ_ONLY: True}) as connection:
            # Answers are read behind the processes: one that ends after its answer has answered.
            running = {each.process: each for each in reloads.supervisors(connection, self.plan.name)}
            notes = configurations.notes(connection, self.plan.name, _MOST_ANSWERS, request=self.number)
        answered = {note.process: note for note in notes}
        for process in self.processes:
            note, now = answered.get(process.process), running.get(process.process)
            if note is not None:
                yield Answer(process, note.outcome, note.problems, note.version)
            elif now is None:
                yield Answer(process, ENDED)
            else:
                yield Answer(now, SILENT if now.silent else WAITING)

    def not_reached(self) -> list[Worker]:
        """Return processes that consume and are older than the request, once all that were asked have taken over: nothing reloads them."""
        with engine_of(self.plan).connect().execution_options(**{READ_ONLY: True}) as connection:
            lately = server_time(connection) - _SEEN_LATELY
            return workers.since_before(connection, self.plan.name, self.at, seen_since=lately)


def ask(plan: AppPlan, operator: Operator) -> Asked:
    """Ask all processes of an app to reload.

    Raises:
        ConfigError: the app has no database.
    """
    trail = Trail(plan, operator, "reload")
    with engine_of(plan).begin() as connection:
        number = reloads.ask(connection, plan.name, operator.who, operator.why)
        trail.note(connection, plan.name, {}, "")
        return Asked(plan, number, server_time(connection), reloads.supervisors(connection, plan.name))
