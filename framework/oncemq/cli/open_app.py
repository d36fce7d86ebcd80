"""The app's databases for commands, which close their connections at their end."""

from collections.abc import Sequence
from pathlib import Path

import click

from oncemq.config import load
from oncemq.engine.plan import AppPlan
from oncemq.errors import ConfigError
from oncemq.operate import databases


def opened(plan: AppPlan) -> None:
    """Make sure that the app's databases answer; within a command, their connections are closed when it ends.

    Raises:
        InfrastructureError: one does not answer.
        LedgerError: one refuses us, or is not what it was.
    """
    command = click.get_current_context(silent=True)
    if command is not None:
        for engine in plan.engines:
            command.call_on_close(engine.dispose)
    databases.prove(plan)


def opened_ledger(files: Sequence[Path], without: str) -> AppPlan:
    """Return the app of `files`, whose databases answer.

    Args:
        files: the app's, in order.
        without: what follows for an app that has no database.

    Raises:
        ConfigError: the app is wrong, or has no database.
        InfrastructureError, LedgerError: as `opened`.
    """
    plan = load(files).plan
    if plan.engine is None:
        raise ConfigError([f"the app has no database, so it {without}"])
    opened(plan)
    return plan
