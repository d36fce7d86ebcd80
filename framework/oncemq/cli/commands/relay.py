"""The command `relay`: sends stored messages of the outbox, without consuming anything."""

import signal
import threading
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import click

from oncemq.cli.exit_codes import FAILED, OK
from oncemq.cli.files import app_option
from oncemq.cli.open_app import opened
from oncemq.cli.output import Output, counted
from oncemq.common.redaction import Redactor
from oncemq.config import load
from oncemq.engine.outbox.confirmed_publisher import Publishing
from oncemq.engine.plan import AppPlan
from oncemq.engine.publishers.caller_outbox import CallerOutbox
from oncemq.errors import ConfigError
from oncemq.ledger.messages import outbox
from oncemq.observe.logs import configure

_LOOK_EVERY = 0.5
_CLOSE_WITHIN = timedelta(seconds=10)


@click.command("relay", short_help="Send what waits in the outbox, without consuming.")
@click.option(
    "--until-empty", is_flag=True, help="End when nothing waits, or when only refused messages are left."
)
@app_option
def relay(files: Sequence[Path], *, until_empty: bool) -> int:
    """Send the messages that were stored in database transactions, until stopped.

    `oncemq run` does the same beside its consumers. This is for services that publish and have no worker.

    Exit code 0: stopped, or nothing waits. 1: with --until-empty, refused messages are left; see `oncemq outbox list`.
    """
    loaded = load(files, consumers=False)
    plan = loaded.plan
    if plan.engine is None:
        raise ConfigError(["the app has no database, so it has no outbox"])
    opened(plan)
    configure(secrets=loaded.secrets)
    stopping = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    publishing = Publishing(plan.adapters, plan.topics, frozenset())
    publishing.open()
    sender = CallerOutbox(plan, publishing, Redactor(loaded.secrets))
    try:
        left = _wait(plan, stopping, until_empty=until_empty)
    finally:
        sender.close(_CLOSE_WITHIN)
        for adapter in plan.adapters.values():
            adapter.close(grace=_CLOSE_WITHIN)
    if left:
        Output(as_json=False).line(f"{counted(left, 'refused message')} left: see `oncemq outbox list`")
    return FAILED if left else OK


def _wait(plan: AppPlan, stopping: threading.Event, *, until_empty: bool) -> int:
    """Return, at the end, how many refused messages are left in an outbox that should be empty."""
    while not stopping.wait(_LOOK_EVERY):
        if not until_empty:
            continue
        waiting, refused = _depth(plan)
        if waiting == refused:
            return refused
    return 0


def _depth(plan: AppPlan) -> tuple[int, int]:
    """Return the number of waiting messages in all databases, and how many of them were refused."""
    waiting = refused = 0
    for engine in plan.engines:
        with engine.connect() as connection:
            found = outbox.depth(connection, plan.name)
        waiting += found.messages
        refused += found.refused
    return waiting, refused
