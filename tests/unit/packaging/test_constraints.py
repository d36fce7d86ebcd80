"""The versions that everything is tested with are fixed, and are those that the package allows."""

import re
import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[3]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
APART = {"redis-py-cluster"}
"""Cannot be installed beside the others; its own extra fixes the version."""


def _fixed() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text().split()
    return {canonicalize_name(name): version for name, _, version in (line.partition("==") for line in lines)}


def test_every_requirement_has_a_fixed_version() -> None:
    """A requirement without one would take a new release as soon as it is out; `make constraints` adds it."""
    fixed = _fixed()
    texts = [
        *PROJECT["dependencies"],
        *(text for extra in PROJECT["optional-dependencies"].values() for text in extra),
    ]
    wanted = [
        requirement for text in texts if (requirement := Requirement(text)).name not in {"oncemq", *APART}
    ]
    assert len(wanted) > 40
    assert [
        str(requirement)
        for requirement in wanted
        if not requirement.specifier.contains(
            fixed.get(canonicalize_name(requirement.name), "0"), prereleases=True
        )
    ] == []


def test_fixed_versions_name_no_place_to_fetch_them_from() -> None:
    """Each line is a name and a version."""
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    assert [line for line in lines if not re.fullmatch(r"[a-z0-9.-]+==[A-Za-z0-9.+!]+", line)] == []


def test_the_version_of_the_package_is_in_one_place() -> None:
    """The build reads it from the code."""
    assert "version" in PROJECT["dynamic"]
