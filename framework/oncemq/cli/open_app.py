"""The app's databases for commands, closed when the command ends."""

from collections.abc import Sequence
from pathlib import Path

import click

from oncemq.config import load
from oncemq.engine.plan import AppPlan
from oncemq.errors import ConfigError
from oncemq.operate import databases


def opened(plan: AppPlan) -> None:
    """Check that the app's databases answer; within a command, their connections are closed when it ends.

    Raises:
        InfrastructureError: a database does not answer.
        LedgerError: a database refuses access, or is not the one from before.
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
        without: the consequence for an app without a database.

    Raises:
        ConfigError: the app is invalid, or has no database.
        InfrastructureError, LedgerError: as `opened`.
    """
    plan = load(files).plan
    if plan.engine is None:
        raise ConfigError([f"the app has no database, so it {without}"])
    opened(plan)
    return plan
