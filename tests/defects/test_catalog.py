"""Every seeded defect still fits the sources; whether it is caught is what `make defects` tries."""

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from defects.catalog import DEFECTS
from defects.defect import SOURCES, Defect, DoesNotApply, Edit
from defects.trial import ROOT
from defects.witness import REPORT, TREE, WRONG_TREE

by_name = pytest.mark.parametrize("defect", DEFECTS, ids=lambda defect: defect.name)


@by_name
def test_a_defect_applies_to_the_sources(defect: Defect, tmp_path: Path) -> None:
    """Its old text stands there once, and what comes out is Python."""
    for file in {edit.file for edit in defect.edits}:
        assert file.split("/", 1)[0] in SOURCES
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / file, tmp_path / file)
    defect.apply(tmp_path)


@by_name
def test_a_defects_tests_exist(defect: Defect) -> None:
    """No one can rename a test without seeing that a defect relies on it."""
    for test in defect.tests:
        file, *path = test.partition("[")[0].split("::")
        assert path[-1] in _functions(ROOT / file, path[:-1]), test


def _functions(file: Path, classes: list[str]) -> set[str]:
    """Return the names of the tests in a file; those of a suite's class stand in the framework's test kit."""
    kit = ROOT / "framework/oncemq/testing"
    files = [file, *kit.rglob("*.py")] if classes else [file]
    nodes = [node for path in files for node in ast.walk(ast.parse(path.read_text()))]
    assert {node.name for node in nodes if isinstance(node, ast.ClassDef)} >= set(classes)
    return {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


def test_there_are_enough_and_each_has_a_name() -> None:
    """At least 25 guards are broken, under names of their own, and each has a test to notice."""
    names = [defect.name for defect in DEFECTS]
    assert len(names) == len(set(names)) >= 25
    assert all(defect.tests and defect.edits and defect.breaks for defect in DEFECTS)


@pytest.mark.parametrize("source", ["nothing of it\n", "x = 1\nx = 1\n"])
def test_what_does_not_fit_is_an_error(source: str, tmp_path: Path) -> None:
    """A text that is gone, or stands there twice, is said and never passed over."""
    (tmp_path / "a.py").write_text(source)
    with pytest.raises(DoesNotApply, match=r"a\.py holds \d times"):
        Edit("a.py", "x = 1", "x = 2").apply(tmp_path)


def test_an_edit_that_makes_no_python_is_an_error(tmp_path: Path) -> None:
    """Else every test would notice, and none would prove anything."""
    (tmp_path / "a.py").write_text("x = 1\n")
    with pytest.raises(DoesNotApply, match="no Python"):
        Edit("a.py", "x = 1", "x =").apply(tmp_path)


def test_a_run_on_other_sources_is_refused(tmp_path: Path) -> None:
    """The checkout is installed, so a copy that is not first in line would go untested without anybody noticing."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "defects.witness", "--collect-only", "-q", __file__],
        cwd=ROOT,
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT / "tests"),
            TREE: str(tmp_path),
            REPORT: str(tmp_path / "r"),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == WRONG_TREE, done.stdout
