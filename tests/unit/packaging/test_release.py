"""What `make release-check` tells its program reaches it."""

import subprocess
import sys
from pathlib import Path

import pytest

from release import __main__ as release

ROOT = Path(__file__).parents[3]


def test_the_line_of_the_makefile_is_understood(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pythons may follow an option that follows the folder."""
    dry = subprocess.run(
        ["make", "--dry-run", "release-check"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    (line,) = [line for line in dry.stdout.splitlines() if "-m release dist --tools" in line]
    monkeypatch.setattr(sys, "argv", line.partition("-m ")[2].split())
    given = release._arguments()
    assert (given.folder, given.tools) == (Path("dist"), Path(".venv-release"))
    assert any("3.11" in python for python in given.pythons)
