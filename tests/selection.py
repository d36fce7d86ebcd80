"""Leaves out tests that a run was not asked for, and prints how many: long forms, and for `--fast` whatever is not quick.

A fast run needs no server and starts no process. Modules that start processes say so by what they import; a test that starts
one all the same fails.
"""

import os
import re
import subprocess
from collections import Counter
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

import pytest

from support.servers import needs_server

SERVERS = "tests that need a server"
PROCESSES = "tests of modules that start processes"
SLOW = "slow tests"
LONG: Sequence[str] = (
    "tests/unit/engine/crash/test_suspects_in_an_app.py",
    "tests/unit/engine/test_application.py",
    "tests/unit/engine/test_outbox_unroutable.py",
    "tests/unit/engine/workers/test_direct_strategies.py",
    "tests/unit/engine/workers/test_direct_unit.py",
    "tests/unit/ids/test_snowflake.py",
    "tests/unit/ledger/database/test_rights.py",
    "tests/unit/ledger/sql/test_equality.py",
    "tests/unit/message/test_hostile.py",
    "tests/unit/observe/test_endpoint.py",
    "tests/unit/strategies/claims/test_claim_book.py",
    "tests/unit/strategies/claims/test_two_phase.py",
    "tests/unit/strategies/claims/test_two_phase_reconciling.py",
    "tests/unit/strategies/redis/test_unit_locks.py",
)
"""Modules whose tests take more than half of the time of all that need no server and no process."""
_STARTS_PROCESSES = re.compile(
    r"\b(?:subprocess|multiprocessing|Popen|os\.fork|sys\.executable|oncemq\.testing\.processes|support\.apps\.(?:command_line|supervised|program|warm)|support\.forking|from services)\b"
)
_COUNTS = pytest.StashKey[Counter[str]]()
_WORKERS = "oncemq_left_out"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option for a run of less than 90 seconds."""
    parser.addoption(
        "--fast",
        action="store_true",
        help="only what needs no server, starts no process and is not marked slow",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marker of long forms."""
    config.addinivalue_line(
        "markers",
        "long_form(setting): left out unless the environment has this `NAME=value`, or this `NAME` with any value",
    )
    config.stash[_COUNTS] = Counter()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect what the run was not asked for."""
    fast, counts = config.getoption("--fast"), config.stash[_COUNTS]
    reasons = {item: reason_against(item, fast=fast) for item in items}
    left_out = [item for item in items if reasons[item]]
    counts.update(reason for reason in reasons.values() if reason)
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not reasons[item]]


def reason_against(item: pytest.Item, *, fast: bool) -> str:
    """Return why a test is left out; empty if it runs."""
    form = item.get_closest_marker("long_form")
    if form is not None:
        name, _, value = form.args[0].partition("=")
        given = os.environ.get(name, "")
        if not given or value not in {"", given}:
            return f"tests of a long form, which runs with {form.args[0]}"
    if not fast:
        return ""
    if needs_server(item):
        return SERVERS
    if item.get_closest_marker("slow") is not None or item.nodeid.startswith(tuple(LONG)):
        return SLOW
    return PROCESSES if _starts_processes(item.path) else ""


@cache
def _starts_processes(file: Path) -> bool:
    return _STARTS_PROCESSES.search(file.read_text()) is not None


@pytest.fixture(autouse=True)
def _no_process(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a test of a fast run fail that starts a process."""
    if request.config.getoption("--fast"):
        monkeypatch.setattr(subprocess.Popen, "__init__", _refuse)


def _refuse(*_: Any, **__: Any) -> NoReturn:
    pytest.fail("this test starts a process: mark it `slow`, so that a fast run leaves it out")


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Give the counts of a worker of xdist to its controller."""
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output[_WORKERS] = dict(session.config.stash[_COUNTS])


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Take the counts of a worker: all of them collect the same."""
    counts = getattr(node, "workeroutput", {}).get(_WORKERS)
    if counts is not None:
        node.config.stash[_COUNTS] = Counter(counts)


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Print the counts."""
    for reason, count in sorted(config.stash[_COUNTS].items()):
        terminalreporter.write_line(f"left out: {count} {reason}")
