"""Commands that run beside each other: all of their output and their failures are shown, and counted together."""

import shlex
import signal
import subprocess
import sys
from pathlib import Path
from time import time

BESIDE = Path(__file__).parents[1] / "beside.py"
TELLING = """
import signal
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
print("begun\\nand going on", flush=True)
signal.sigwait({signal.SIGTERM})
print("2 failed in 1.0s")
"""
PASSED = "echo ==== 3 passed, 1 skipped in 1.20s ===="


def ran(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run commands beside each other."""
    command = [sys.executable, str(BESIDE), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def beside(*commands: str) -> list[str]:
    """Return the arguments that name these commands."""
    return [argument for command in commands for argument in ("--beside", command)]


def test_the_last_line_counts_the_tests_of_all() -> None:
    """It looks like the test runner's own."""
    result = ran(
        *beside(PASSED, "echo of both looks: 0 failed, 5 passed, 0 not run, 1 flaky in 2.00s"), PASSED
    )
    assert result.returncode == 0, result.stdout
    assert " 11 passed, 2 skipped, 1 flaky in " in result.stdout.splitlines()[-1]


def test_a_failure_beside_fails_the_run_and_is_shown() -> None:
    """What it said stands before the last lines; those behind it run all the same."""
    failing = "sh -c 'echo its traceback; echo 1 failed, 2 passed in 0.10s; exit 1'"
    result = ran(*beside(failing, PASSED), PASSED)
    assert result.returncode == 1
    assert "its traceback" in result.stdout
    assert " 1 failed, 8 passed, 2 skipped in " in result.stdout.splitlines()[-1]


def test_what_says_nothing_of_tests_is_an_error() -> None:
    """An environment that could not be made has run no test, whatever its exit code."""
    result = ran(*beside("echo nothing"), PASSED)
    assert result.returncode == 1
    assert " 1 error, 3 passed, 1 skipped in " in result.stdout.splitlines()[-1]


def test_a_failure_without_a_failed_test_is_an_error() -> None:
    """The last line never looks as if all were well."""
    result = ran("sh -c 'echo 3 passed in 0.10s; exit 2'")
    assert result.returncode == 1
    assert " 1 error, 3 passed in " in result.stdout.splitlines()[-1]


def test_all_end_when_told() -> None:
    """SIGTERM reaches the commands, which show what they have; what has not begun does not begin."""
    telling = shlex.join([sys.executable, "-c", TELLING])
    command = [sys.executable, str(BESIDE), *beside("sleep 600", PASSED), telling]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        said = process.stdout.read()
    assert process.returncode == 1
    assert "did not run" in said
    assert " 2 failed, 2 error in " in said.splitlines()[-1]


def test_nothing_runs_without_end() -> None:
    """Commands that have not ended in their time are told to, and then killed."""
    result = ran("--until", str(time()), "--grace", "0.1", "sh -c 'trap : TERM; while :; do sleep 0.1; done'")
    assert result.returncode == 1
    assert " 1 error in " in result.stdout.splitlines()[-1]
