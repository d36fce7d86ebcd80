"""The bytecode that workers of pytest need is written before they begin."""

import os
import subprocess
import sys
from pathlib import Path

REWRITTEN = Path(__file__).parents[2] / "rewritten.py"
WITHOUT_REWRITING = """
import sys

import pytest
from _pytest.assertion import rewrite

original = rewrite._rewrite_test


def refuse(file, config):
    assert file.name != "test_it.py", "rewritten once more"
    return original(file, config)


rewrite._rewrite_test = refuse
sys.exit(pytest.main(["-q", "-p", "no:oncemq", "-p", "no:cacheprovider", *sys.argv[1:]]))
"""


def written(folder: Path) -> str:
    """Write what is missing in a folder, where Python itself may write none; returns what is said."""
    return subprocess.run(
        [sys.executable, REWRITTEN, folder],
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    ).stdout


def test_pytest_finds_what_was_written(tmp_path: Path) -> None:
    """A worker rewrites nothing, and a failure still shows both sides of what was compared."""
    (tmp_path / "test_it.py").write_text("def test_it():\n    assert [1] + [2] == [1, 3]\n")
    assert written(tmp_path) == "assertions of 1 modules rewritten, of 1\n"
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_REWRITING, "test_it.py"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    assert "At index 1 diff: 2 != 3" in done.stdout, done.stdout


def test_only_what_changed_is_written_again(tmp_path: Path) -> None:
    """Bytecode of another source is replaced, that of the same source stays."""
    for name in ("test_one.py", "test_two.py"):
        (tmp_path / name).write_text("def test_it():\n    assert 1 == 1\n")
    written(tmp_path)
    (tmp_path / "test_two.py").write_text("def test_it():\n    assert 2 == 2\n")
    assert written(tmp_path) == "assertions of 1 modules rewritten, of 2\n"
