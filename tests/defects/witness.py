"""A pytest plugin inside a run on a changed copy: proves that the copy is what is tested, and notes what failed."""

import importlib.util
import json
import os
from pathlib import Path

import pytest

from defects.defect import SOURCES

TREE = "ONCEMQ_DEFECTS_TREE"
REPORT = "ONCEMQ_DEFECTS_REPORT"
WRONG_TREE = 99
"""Exit code: the sources that would be tested are not those of the copy."""


def pytest_configure() -> None:
    """Refuse to run on sources from anywhere else."""
    tree = Path(os.environ[TREE]).resolve()
    for folder, package in SOURCES.items():
        found = importlib.util.find_spec(package)
        origin = found.origin if found is not None else None
        if origin is None or tree / folder not in Path(origin).resolve().parents:
            pytest.exit(f"{package} comes from {origin}, not from {tree}", WRONG_TREE)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Write down every failure as it happens; a hanging run may be ended at any time."""
    if report.failed:
        with Path(os.environ[REPORT]).open("a") as file:
            file.write(json.dumps({"test": report.nodeid, "when": report.when}) + "\n")
