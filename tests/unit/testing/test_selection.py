"""The tests that a run leaves out, on a toy suite."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[2]
INI = f"[pytest]\npythonpath = {TESTS}\naddopts = -p no:cacheprovider -p xdist -p support.servers -p selection\nmarkers =\n    slow: slow\n"
LONG = "import pytest\n\n@pytest.mark.long_form('ONCEMQ_TOY=whole')\n@pytest.mark.parametrize('n', range(3))\ndef test_long(n):\n    pass\n\ndef test_short():\n    pass\n"
QUICK = "import pytest\nfrom toy_helper import start\n\ndef test_quick():\n    pass\n\n@pytest.mark.slow\ndef test_slow():\n    pass\n\ndef test_hides_a_process():\n    start()\n"
STARTS = "import subprocess\n\ndef test_of_a_process():\n    pass\n"
HELPER = "import subprocess\nimport sys\n\ndef start():\n    subprocess.run([sys.executable, '-c', ''], check=True)\n"


def run(folder: Path, *options: str, **settings: str) -> str:
    """Return what pytest printed in a folder."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *options, "."],
        cwd=folder,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", **settings},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout


@pytest.fixture
def toy(tmp_path: Path) -> Path:
    """Return the folder of the toy suite."""
    files: Mapping[str, str] = {
        "pytest.ini": INI,
        "test_forms.py": LONG,
        "test_quick.py": QUICK,
        "test_starts.py": STARTS,
        "toy_helper.py": HELPER,
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    return tmp_path


@pytest.mark.parametrize("options", [(), ("-n", "2")], ids=["alone", "distributed"])
def test_long_forms_are_left_out_and_counted(toy: Path, options: tuple[str, ...]) -> None:
    """They are no skips: a run says how many of them it was not asked for."""
    said = run(toy, *options)
    assert "left out: 3 tests of a long form, which runs with ONCEMQ_TOY=whole" in said
    assert "5 passed" in said
    assert "skipped" not in said


def test_a_long_form_runs_with_its_setting(toy: Path) -> None:
    """Its name and value are those of the marker."""
    said = run(toy, ONCEMQ_TOY="whole")
    assert "left out" not in said
    assert "8 passed" in said


@pytest.mark.parametrize(("given", "left_out"), [("200000", False), ("", True)])
def test_a_long_form_may_take_any_value_of_its_setting(toy: Path, given: str, left_out: bool) -> None:
    """A setting that says how long the form is, such as a number of messages, is named without a value."""
    (toy / "test_forms.py").write_text(LONG.replace("ONCEMQ_TOY=whole", "ONCEMQ_TOY"))
    said = run(toy, ONCEMQ_TOY=given)
    assert ("left out: 3 tests of a long form, which runs with ONCEMQ_TOY" in said) is left_out


def test_a_fast_run_starts_no_process(toy: Path) -> None:
    """It leaves out slow tests and modules that start processes, and fails what starts one all the same."""
    said = run(toy, "--fast")
    assert "left out: 1 slow tests" in said
    assert "left out: 1 tests of modules that start processes" in said
    assert "FAILED test_quick.py::test_hides_a_process" in said
    assert "1 failed, 2 passed" in said
