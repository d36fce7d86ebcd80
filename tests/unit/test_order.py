"""The order of the tests and what stays in one worker, on a toy suite that xdist itself runs."""

import subprocess
import sys
from pathlib import Path

import pytest

from support.order import APART, LONGEST_FIRST, TOGETHER, group

TESTS = Path(__file__).parents[1]
MODULE = "import pytest\n\n@pytest.mark.parametrize('n', range(3))\ndef test_some(n):\n    pass\n"
SLOW = f"{MODULE}\npytestmark = pytest.mark.slow\n"
OPTIONS = f"pythonpath = {TESTS}\naddopts = -p no:cacheprovider -p support.order --import-mode=importlib\nmarkers =\n    slow: slow\n"


def test_the_longest_begin_first_and_modules_stay_together(tmp_path: Path) -> None:
    """Storms on shared servers, then the folders as listed, slow modules before quick ones; a module in one worker."""
    modules = {"a/test_a": MODULE, "b/test_b": SLOW, "scenarios/test_s": MODULE, "storm/test_storm": MODULE}
    for name, text in modules.items():
        file = tmp_path / "tests" / f"{name}.py"
        file.parent.mkdir(parents=True)
        file.write_text(text)
    (tmp_path / "pytest.ini").write_text(f"[pytest]\n{OPTIONS}")
    command = [sys.executable, "-m", "pytest", "-n", "1", "--dist", "loadscope", "-v", "."]
    said = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    ran = [line.split()[-1] for line in said.splitlines() if " PASSED " in line]
    assert [name.partition("::")[0] for name in ran] == [
        *["tests/storm/test_storm.py"] * 3,
        *["tests/scenarios/test_s.py"] * 3,
        *["tests/b/test_b.py"] * 3,
        *["tests/a/test_a.py"] * 3,
    ]


@pytest.mark.parametrize(
    ("test", "together"),
    [
        ("tests/unit/test_a.py::test_it[a::b]", "tests/unit/test_a.py"),
        ("tests/suites/test_a.py::TestIt::test_it[a]", "tests/suites/test_a.py::TestIt"),
        ("tests/matrix/test_accepted.py::test_it[a]", "tests/matrix/test_accepted.py::test_it[a]"),
        ("tests/storm/test_recovery.py::test_it", group("tests/storm/test_storm.py::test_other")),
    ],
)
def test_what_stays_together(test: str, together: str) -> None:
    """Modules and classes, what shares a server of its own, and no test of a module that is taken apart."""
    assert group(test) == together


@pytest.mark.parametrize("path", [*APART, *TOGETHER, *LONGEST_FIRST])
def test_what_is_listed_exists(path: str) -> None:
    """A list that names what was moved away would say nothing."""
    assert list(TESTS.parent.glob(f"{path}*"))
