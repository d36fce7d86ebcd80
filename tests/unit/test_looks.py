"""The second look at tests that failed: on toy suites, that no test is left unrun and no flake is hidden."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

LOOKS = Path(__file__).parents[1] / "looks.py"
ONCE = """
from pathlib import Path

def first_time(name):
    mark = Path(__file__).with_name(name)
    seen = mark.exists()
    mark.touch()
    return not seen
"""
GOOD = "def test_good():\n    pass\n"


def looked(
    folder: Path, *arguments: str, limit: int | None = None, unforgiving: bool = False
) -> subprocess.CompletedProcess[str]:
    """Run both looks on the suite in `folder`."""
    (folder / "once.py").write_text(ONCE)
    (folder / "pytest.ini").write_text("[pytest]\npythonpath = .\naddopts = -p no:cacheprovider\n")
    limited = [] if limit is None else ["--flaky-limit", str(limit)]
    limited += ["--unforgiving"] if unforgiving else []
    return subprocess.run(
        [sys.executable, LOOKS, "--flaky-file", "flaky.jsonl", *limited, "--", *arguments, "."],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )


def flaky(name: str) -> str:
    """Return a test that fails the first time."""
    return f"from once import first_time\n\ndef {name}():\n    assert not first_time({name!r})\n"


@pytest.mark.parametrize("workers", ["0", "2"])
def test_a_module_that_cannot_be_collected_fails_at_once(tmp_path: Path, workers: str) -> None:
    """Its tests never ran, although the module could be imported the second time."""
    (tmp_path / "test_a.py").write_text(
        f"from once import first_time\nif first_time('a') or {workers} and first_time('b'):\n    raise OSError('busy')\n{GOOD}"
    )
    (tmp_path / "test_b.py").write_text(flaky("test_sometimes"))
    result = looked(tmp_path, "-n", workers)
    assert result.returncode != 0
    assert "not collected: test_a.py" in result.stdout
    assert "once more" not in result.stdout


def test_a_flake_is_named_and_kept(tmp_path: Path) -> None:
    """It passes the second time, is printed with its traceback at the end, and written down; the counts add up."""
    (tmp_path / "test_a.py").write_text(GOOD + flaky("test_sometimes"))
    result = looked(tmp_path, "-n", "2")
    assert result.returncode == 0, result.stdout
    assert "flaky: test_a.py::test_sometimes" in result.stdout
    assert (
        "of both looks: 0 failed, 2 passed, 0 skipped, 0 not run, 1 flaky" in result.stdout.splitlines()[-1]
    )
    (line,) = (tmp_path / "flaky.jsonl").read_text().splitlines()
    assert json.loads(line)["test"] == "test_a.py::test_sometimes"
    assert "assert not first_time" in json.loads(line)["traceback"]


@pytest.mark.parametrize(
    ("folder", "name"), [("storm", "test_a"), ("suites", "test_b"), (".", "test_nothing_is_lost_here")]
)
def test_what_looks_for_lost_or_doubled_effects_is_never_forgiven(
    tmp_path: Path, folder: str, name: str
) -> None:
    """Where that is asked for, a loss that is seen once is a loss; else it is named as flaky like any other."""
    (tmp_path / folder).mkdir(exist_ok=True)
    (tmp_path / folder / "test_file.py").write_text(flaky(name))
    result = looked(tmp_path, unforgiving=True)
    assert result.returncode == 1
    assert "never forgiven" in result.stdout


def test_more_flakes_than_allowed_fail(tmp_path: Path) -> None:
    """Where a limit is given, it holds."""
    (tmp_path / "test_a.py").write_text(flaky("test_one") + flaky("test_two"))
    assert looked(tmp_path, limit=1).returncode == 1


def test_what_fails_twice_fails(tmp_path: Path) -> None:
    """The second look runs only what failed, and its failure is the run's."""
    (tmp_path / "test_a.py").write_text(GOOD + "def test_bad():\n    assert False\n")
    result = looked(tmp_path)
    assert result.returncode == 1
    assert "once more, alone: 1 tests" in result.stdout
    assert "of both looks: 1 failed, 1 passed" in result.stdout


def test_what_did_not_run_runs_in_the_second_look(tmp_path: Path) -> None:
    """A first look that stopped early leaves tests over; they run, too."""
    bad = flaky("test_a")
    (tmp_path / "test_a.py").write_text(bad + GOOD)
    result = looked(tmp_path, "--maxfail", "1")
    assert "once more, alone: 2 tests" in result.stdout
    assert result.returncode == 0, result.stdout
    assert "of both looks: 0 failed, 2 passed" in result.stdout
