"""`oncemq run`: worker processes that each load the app themselves, under one supervisor."""

import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from datetime import timedelta
from pathlib import Path

import click

from oncemq.cli.exit_codes import FATAL, FINISHED, UNREACHABLE, exit_code
from oncemq.cli.files import app_option
from oncemq.cli.main import show_error
from oncemq.cli.preflight import failed_connections
from oncemq.cli.reload.candidate import running
from oncemq.cli.reload.ledger_requests import LedgerRequests
from oncemq.cli.reload.reloader import Reloader, on_hangup
from oncemq.cli.reload.turns import Turns
from oncemq.cli.replacements import telling
from oncemq.cli.worker import Mourner, Worker, tell_silence
from oncemq.common.durations import parse_duration
from oncemq.common.fork_server import ForkServer
from oncemq.config import load, pinned
from oncemq.config.build.plan import DEFAULT_GRACE, LoadedApp
from oncemq.engine.supervisor import Death, Supervisor
from oncemq.errors import BrokerUnavailable, ConfigError, InfrastructureError, MissingExtra, OnceMQError
from oncemq.observe.logs import configure
from oncemq.observe.otel.supervisor import counts_exported
from oncemq.observe.process_group import ProcessGroup
from oncemq.observe.worker_counts import WorkerCounts
from oncemq.operate.configuration.history import History, Member

_BETWEEN_TRIES = 1.0
_PROGRAM = frozenset(
    {"oncemq", "oncemq_adapters", "oncemq_strategies", "sqlalchemy", "psycopg", "pymysql", "redis", "pika"}
)
"""Packages whose modules a worker process need not import itself."""


def _duration(_context: click.Context, _parameter: click.Parameter, value: str | None) -> timedelta | None:
    try:
        return parse_duration(value) if value is not None else None
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


@click.command(
    epilog="""\b
Examples:
  oncemq run
  oncemq run --processes 4
  oncemq run --until-idle 5s      # for scripts: ends when nothing has come for 5 seconds
  oncemq run --reload             # while developing: starts again when a file changes

\b
SIGTERM or Ctrl-C drains: what was begun is finished and settled. The whole stop fits into `grace` (30s).
A second signal stops at once; unsettled messages are delivered again.
SIGHUP reloads: the files are checked, then worker processes are replaced one after the other.
"""
)
@click.option(
    "--processes", type=click.IntRange(1, 1024), help="Worker processes. Default: what app.yaml says."
)
@click.option(
    "--until-idle",
    metavar="DURATION",
    callback=_duration,
    help="End, with code 0, when nothing has come for so long, and nothing waits for a retry or its turn.",
)
@click.option(
    "--deadline",
    metavar="DURATION",
    callback=_duration,
    help="With --until-idle: end after so long in any case, with code 6 if something is left.",
)
@click.option(
    "--wait",
    metavar="DURATION",
    callback=_duration,
    help="At the start wait so long for brokers and databases that do not answer yet.",
)
@click.option("--reload", "reloading", is_flag=True, help="Start the workers again when a file changes.")
@app_option
def run(
    files: Sequence[Path],
    processes: int | None,
    until_idle: timedelta | None,
    deadline: timedelta | None,
    wait: timedelta | None,
    reloading: bool,
) -> int:
    """Consume until stopped."""
    if deadline is not None and until_idle is None:
        raise click.UsageError("--deadline bounds --until-idle: write both")
    forks, texts_read = _fork_server(), time.monotonic()
    texts = None if reloading else pinned(files)
    loaded = _loaded(files, forks, texts)
    if not loaded.plan.consumers:
        raise ConfigError([f"{files[0]}: there are no consumers to run – declare one below consumers:"])
    loaded, failures = _connected(lambda: load(files, texts=texts), loaded, wait)
    for engine in loaded.plan.engines:
        engine.dispose()
    if failures:
        for failure in failures:
            show_error(failure)
        return exit_code(failures[0])
    logging = loaded.model.logging
    if logging is None or logging.configure:
        configure(
            logging.level if logging else "info",
            logging.format if logging else "auto",
            secrets=loaded.secrets,
            row_values=logging is not None and logging.row_values,
        )
    count = processes or loaded.model.processes
    counts = WorkerCounts(count)
    group = None if loaded.plan.http is None else ProcessGroup(loaded.plan.http, count, counts)
    worker = Worker(tuple(files), until_idle, deadline, None if group is None else group.folder, texts)
    supervisor = Supervisor(
        worker,
        count,
        loaded.model.grace or DEFAULT_GRACE,
        _counting(Mourner(loaded), counts),
        FATAL,
        UNREACHABLE,
        FINISHED,
        tell_silence,
        forks=forks,
        recycle=loaded.plan.recycle,
        on_replacement=telling(counts, group),
    )
    if reloading:
        _watch(files, supervisor)
    try:
        with (
            nullcontext() if reloading else _reloads(loaded, worker, supervisor, group, texts_read),
            counts_exported(loaded.plan.name, counts),
        ):
            return supervisor.run()
    finally:
        if group is not None:
            group.close()


@contextmanager
def _reloads(
    loaded: LoadedApp, worker: Worker, supervisor: Supervisor, group: ProcessGroup | None, texts_read: float
) -> Iterator[None]:
    """Reload at SIGHUP, and when an operator asks all processes through the ledger."""
    plan, member = loaded.plan, Member.this()
    if plan.engine is None:
        reloader = Reloader(worker, supervisor, running(loaded), group)
        reloader.start()
        with on_hangup(reloader):
            yield
        return
    history, turns = History(plan.engine, plan.name, member), Turns(plan.engine, plan.name, member.name)
    reloader = Reloader(worker, supervisor, running(loaded), group, history, turns)
    reloader.start()
    requests = LedgerRequests(plan.engine, plan.name, member, reloader, texts_read)
    requests.start()
    try:
        with on_hangup(reloader):
            yield
    finally:
        requests.stop()
        turns.close()


def _fork_server() -> ForkServer | None:
    """Start it before anything of the user's is imported: what that starts must not be forked."""
    forks = ForkServer.started()
    if forks is not None:
        click.get_current_context().call_on_close(forks.close)
    return forks


def _loaded(files: Sequence[Path], forks: ForkServer | None, texts: Mapping[Path, bytes] | None) -> LoadedApp:
    """Load the app; meanwhile-imported modules of this program and its clients are imported by the fork server, too."""
    loaded = load(files, texts=texts)
    if forks is not None:
        forks.import_modules(name for name in sys.modules if name.partition(".")[0] in _PROGRAM)
    return loaded


def _counting(mourner: Mourner, counts: WorkerCounts) -> Callable[[Death], None]:
    """Return what handles the death of a worker process, and counts it."""

    def died(death: Death) -> None:
        if not death.replaced:
            counts.restarted(death.index)
        mourner(death)

    return died


def _connected(
    load_again: Callable[[], LoadedApp], loaded: LoadedApp, wait: timedelta | None
) -> tuple[LoadedApp, list[OnceMQError]]:
    """Connect to everything; while servers do not answer, try again until `wait` is over. Returns what failed last."""
    end = time.monotonic() + (wait.total_seconds() if wait else 0)
    said: set[str] = set()
    while True:
        failures = list(failed_connections(loaded.plan))
        passing = all(isinstance(failure, BrokerUnavailable | InfrastructureError) for failure in failures)
        if not failures or not passing or time.monotonic() >= end:
            return loaded, failures
        for text in [str(failure) for failure in failures if str(failure) not in said]:
            said.add(text)
            click.echo(f"waiting: {text}", err=True)
        time.sleep(min(_BETWEEN_TRIES, max(0.0, end - time.monotonic())))
        # Connecting closes the adapters behind it.
        loaded = load_again()


def _watch(files: Sequence[Path], supervisor: Supervisor) -> None:
    try:
        from watchfiles import PythonFilter, watch  # noqa: PLC0415 - an optional package
    except ModuleNotFoundError:
        raise MissingExtra("--reload needs the package 'watchfiles': pip install 'oncemq[reload]'") from None
    wanted = PythonFilter(extra_extensions=tuple(file.suffix for file in files if file.suffix))
    folders = sorted({str(file.resolve().parent) for file in files})

    def look() -> None:
        for _changes in watch(*folders, watch_filter=wanted, raise_interrupt=False):
            supervisor.reload()

    threading.Thread(target=look, name="oncemq-reload", daemon=True).start()
