"""Every seeded defect still fits the sources; whether it is caught is what `make defects` tries."""

import ast
import gc
import os
import shutil
import subprocess
import sys
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest

from defects import catalog
from defects.catalog import DEFECTS
from defects.defect import SOURCES, Defect, DoesNotApply, Edit, parsed, told_apart
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


def _functions(file: Path, classes: list[str]) -> frozenset[str]:
    """Return the names of the tests in a file; those of a suite's class stand in the framework's test kit."""
    defined, functions = _names(file)
    if classes:
        kit_classes, kit_functions = _names_of_the_kit()
        defined, functions = defined | kit_classes, functions | kit_functions
    assert defined >= set(classes)
    return functions


@cache
def _names_of_the_kit() -> tuple[frozenset[str], frozenset[str]]:
    names = [_names(path) for path in (ROOT / "framework/oncemq/testing").rglob("*.py")]
    return frozenset().union(*(own for own, _ in names)), frozenset().union(*(own for _, own in names))


@cache
def _names(file: Path) -> tuple[frozenset[str], frozenset[str]]:
    """Return the names of a file's classes and of its functions."""
    nodes = list(ast.walk(parsed(file.read_text())))
    return (
        frozenset(node.name for node in nodes if isinstance(node, ast.ClassDef)),
        frozenset(node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)),
    )


def test_every_set_of_parameters_that_a_defect_names_is_there() -> None:
    """A parameter that is renamed, or a fixture that loses it, would leave a defect without the test that notices it."""
    named = sorted({test for defect in DEFECTS for test in defect.tests if "[" in test})
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", *named]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    collected = set(done.stdout.splitlines())
    assert [test for test in named if test not in collected] == [], done.stdout[-2000:]


def test_every_file_of_the_catalog_is_tried() -> None:
    """A file that the catalogue does not list would hold defects that are never tried."""
    folder = Path(catalog.__file__).parent
    found = [
        defect
        for file in sorted(folder.rglob("*.py"))
        if file.name != "__init__.py"
        for defect in import_module(
            ".".join(file.relative_to(folder.parents[1]).with_suffix("").parts)
        ).DEFECTS
    ]
    assert {defect.name for defect in found} == {defect.name for defect in DEFECTS}


def test_two_defects_of_one_name_are_refused() -> None:
    """`--only` would try both, and a page would name the tests of one."""
    first, second = (Defect("same", "breaks", [Edit("a.py", "x", str(number))], ["t"]) for number in range(2))
    with pytest.raises(ValueError, match="more than one defect is called same"):
        told_apart(first, second)


def test_one_change_under_two_names_is_refused() -> None:
    """The second would prove nothing more."""
    first, second = (Defect(name, "breaks", [Edit("a.py", "x", "y")], ["t"]) for name in ("one", "other"))
    with pytest.raises(ValueError, match="one and other make the same change"):
        told_apart(first, second)


def test_an_edit_that_changes_only_a_comment_is_an_error(tmp_path: Path) -> None:
    """It breaks nothing, so no test could notice it."""
    (tmp_path / "a.py").write_text("x = 1  # the first\n")
    with pytest.raises(DoesNotApply, match="does the same"):
        Edit("a.py", "first", "second").apply(tmp_path)


def test_a_source_is_parsed_while_a_collection_would_parse_another() -> None:
    """What a collection runs may format a traceback, for which Python 3.11 parses, and confuse the parser that was interrupted."""

    def parse_deeper(phase: str, info: dict[str, int], frames: int = 5) -> None:
        if frames:
            parse_deeper(phase, info, frames - 1)
        else:
            ast.parse("x = 1")

    usual = gc.get_threshold()
    gc.callbacks.append(parse_deeper)
    gc.set_threshold(50)
    try:
        assert parsed(Path(__file__).read_text()).body
        assert gc.isenabled()
    finally:
        gc.set_threshold(*usual)
        gc.callbacks.remove(parse_deeper)


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
        [
            sys.executable,
            "-m",
            "pytest",
            "-p",
            "defects.witness",
            "--collect-only",
            "-q",
            "tests/test_open_connections.py",
        ],
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
