"""The kit as its documentation shows it: examples, the written project, and the plugin of pytest."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
EXAMPLES = sorted(path.parent.name for path in ROOT.glob("examples/*/test_*.py"))

WITHOUT = ("-p", "no:anyio", "-p", "no:hypothesispytest", "-p", "no:xdist")
"""Plugins that the kit has nothing to do with, and that take longer to start than its own."""


def _pytest(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        *WITHOUT,
        f"--rootdir={folder}",
        *options,
    ]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_tests_of_an_example_pass(name: str, tmp_path: Path) -> None:
    """As a reader runs them: in the example's folder, without a server."""
    folder = tmp_path / name
    shutil.copytree(ROOT / "examples" / name, folder)
    ran = _pytest(folder)
    assert ran.returncode == 0, ran.stdout
    assert not list(folder.glob("*.db*"))


def test_the_documented_test_is_that_of_the_example() -> None:
    """The page begins with a file that runs; its other parts are run as parts of pages."""
    page = (ROOT / "docs" / "testing.md").read_text()
    shown, *_ = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert shown == (ROOT / "examples" / "points" / "test_points.py").read_text()


def test_the_written_project_has_passing_tests(tmp_path: Path) -> None:
    """`oncemq init` writes them, and they need no step before."""
    made = subprocess.run(
        [sys.executable, "-m", "oncemq", "init", "shop"], cwd=tmp_path, capture_output=True, check=False
    )
    assert made.returncode == 0
    ran = _pytest(tmp_path / "shop")
    assert ran.returncode == 0, ran.stdout
    assert "3 passed" in ran.stdout


def test_an_option_names_the_app(tmp_path: Path) -> None:
    """`--oncemq-app` is the app of the fixture; without it, app.yaml of pytest's root folder."""
    source = ROOT / "examples" / "points"
    shutil.copy(source / "handlers.py", tmp_path)
    shutil.copy(source / "app.yaml", tmp_path / "other.yaml")
    (tmp_path / "test_one.py").write_text(
        "def test_it(oncemq_app):\n    assert oncemq_app.publish('order.paid', b'?').code == 'undecodable'\n"
    )
    assert _pytest(tmp_path, "--oncemq-app", "other.yaml").returncode == 0
    missing = _pytest(tmp_path)
    assert missing.returncode != 0
    assert "app.yaml" in missing.stdout
