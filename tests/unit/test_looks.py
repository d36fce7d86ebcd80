"""The second look at tests that failed: on toy suites, that no test is left unrun and no flake is hidden."""

import json
import os
import subprocess
import sys
from pathlib import Path
from time import time

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
ALONE = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
"""No plugin that happens to be installed: they take most of the time in which pytest starts."""
ENDLESS = "def test_long():\n    import threading\n    threading.Event().wait()\n"
GOOD = "def test_good():\n    pass\n"


def prepare(folder: Path) -> None:
    """Write what every toy suite has."""
    (folder / "once.py").write_text(ONCE)
    (folder / "pytest.ini").write_text("[pytest]\npythonpath = .\naddopts = -p no:cacheprovider -p xdist\n")


def looked(
    folder: Path,
    *arguments: str,
    limit: int | None = None,
    unforgiving: bool = False,
    seconds: float | None = None,
    loaded: int = 0,
) -> subprocess.CompletedProcess[str]:
    """Run all looks on the suite in `folder`."""
    prepare(folder)
    limited = [] if limit is None else ["--flaky-limit", str(limit)]
    limited += ["--unforgiving"] if unforgiving else []
    limited += ["--under-load", str(loaded), "--busy", "0"]
    limited += ["--until", str(time() + seconds)] if seconds is not None else []
    return subprocess.run(
        [sys.executable, LOOKS, "--flaky-file", "flaky.jsonl", *limited, "--", *arguments, "."],
        cwd=folder,
        env=ALONE,
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


def test_what_fails_only_under_load_is_no_flake(tmp_path: Path) -> None:
    """A race that busy cores bring out each time is a defect, although the test passes alone."""
    run = "from pathlib import Path\n\ndef test_race():\n    runs = Path(__file__).with_name('runs')\n"
    run += "    runs.open('a').write('x')\n    assert len(runs.read_text()) == 2\n"
    (tmp_path / "test_a.py").write_text(run)
    result = looked(tmp_path, loaded=2)
    assert result.returncode == 1, result.stdout
    assert "failed twice or did not run: test_a.py::test_race" in result.stdout
    assert "flaky: " not in result.stdout


def test_a_flake_is_repeated_under_load(tmp_path: Path) -> None:
    """How often it passed beside busy processes is printed and kept."""
    (tmp_path / "test_a.py").write_text(flaky("test_sometimes"))
    assert "passed alone, and 1 of 1 times under load" in looked(tmp_path, loaded=1).stdout
    assert "1 of 1" in json.loads((tmp_path / "flaky.jsonl").read_text())["under_load"]


def test_a_run_that_is_told_to_end_shows_what_failed(tmp_path: Path) -> None:
    """A failure is named when it happens; SIGTERM ends the run with the failures and what did not run."""
    prepare(tmp_path)
    (tmp_path / "test_a.py").write_text("def test_bad():\n    assert 1 == 2\n")
    (tmp_path / "test_b.py").write_text(ENDLESS)
    command = [sys.executable, LOOKS, "--", "-n", "2", "."]
    with subprocess.Popen(command, cwd=tmp_path, env=ALONE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("failed: test_a.py::test_bad"):
                break
        process.terminate()
        said = process.stdout.read()
    assert process.returncode == 1
    assert "did not run: test_b.py::test_long" in said
    assert "of one look: 1 failed, 0 passed, 0 skipped, 1 not run" in said.splitlines()[-1]


def test_a_run_out_of_time_fails(tmp_path: Path) -> None:
    """It ends by itself, instead of being cut off, and says so."""
    (tmp_path / "test_b.py").write_text(ENDLESS)
    result = looked(tmp_path, seconds=1)
    assert result.returncode == 1
    assert "time was up" in result.stdout


def test_so_many_failures_are_not_looked_at_again(tmp_path: Path) -> None:
    """They are no matter of busy cores, and another look at them would take longer than the first."""
    many = "import pytest\n\n@pytest.mark.parametrize('number', range(51))\ndef test_bad(number):\n    assert number < 0\n"
    (tmp_path / "test_a.py").write_text(many)
    result = looked(tmp_path)
    assert result.returncode == 1
    assert "too many for another look: 51" in result.stdout
    assert "once more" not in result.stdout


@pytest.mark.parametrize("workers", ["0", "2"])
def test_the_dearest_modules_are_named(tmp_path: Path, workers: str) -> None:
    """With the time of their fixtures, the dearest first, and all of them in a file."""
    slow = "import pytest, time\n@pytest.fixture\ndef slow():\n    time.sleep(0.5)\ndef test_slow(slow):\n    pass\n"
    (tmp_path / "test_a.py").write_text(GOOD)
    (tmp_path / "test_b.py").write_text(slow + GOOD)
    result = looked(tmp_path, "-n", workers)
    lines = [line.split("\t") for line in (tmp_path / "seconds.tsv").read_text().splitlines()]
    assert [(count, name) for _, count, name in lines] == [("2", "test_b.py"), ("1", "test_a.py")]
    assert float(lines[0][0]) >= 0.5
    assert result.stdout.index("test_b.py (2)") < result.stdout.index("test_a.py (1)")
