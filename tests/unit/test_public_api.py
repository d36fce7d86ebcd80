"""What users may import is listed in one place, documented, and changes only when someone means it."""

import inspect
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from oncemq.app_options import ConsumerOptions, TopicOptions
from oncemq.config.model.app_model import Consumer, Topic
from support import public_api

ROOT = Path(__file__).parents[2]
PUBLIC = public_api.public()
SIGNATURES = Path(__file__).parent / "public_api.txt"
TYPED_USAGE = ROOT / "tests" / "typed_usage"


@pytest.mark.parametrize("module", sorted(PUBLIC))
def test_every_public_name_is_there_and_documented(module: str) -> None:
    """Classes and functions of ours have a docstring, and so has each public method."""
    found = import_module(module)
    missing = []
    for name in PUBLIC[module]:
        value: Any = getattr(found, name)
        if not (inspect.isclass(value) or inspect.isfunction(value)):
            continue
        if value.__module__.startswith("oncemq") and not inspect.getdoc(value):
            missing.append(name)
        if inspect.isclass(value) and not issubclass(value, BaseException):
            missing += [
                f"{name}.{each}" for each, method in public_api.members(value) if not inspect.getdoc(method)
            ]
    assert missing == []


@pytest.mark.parametrize("module", sorted(PUBLIC))
def test_every_public_name_is_on_the_page(module: str) -> None:
    """docs/public-api.md names the module and each of its public names."""
    page = (ROOT / "docs" / "public-api.md").read_text()
    _, _, section = page.partition(f"\n## `{module}`\n")
    section = section.partition("\n## ")[0]
    assert section, f"docs/public-api.md has no section of {module}"
    assert [name for name in PUBLIC[module] if f"`{name}`" not in section] == []


def test_signatures_change_only_on_purpose() -> None:
    """What users call keeps its arguments; a change that is meant is written down and goes into the changelog."""
    found = list(public_api.signatures())
    written = SIGNATURES.read_text().splitlines()
    new, gone = sorted(set(found) - set(written)), sorted(set(written) - set(found))
    assert (new, gone) == ([], []), (
        "if that is meant: cd tests && python -m support.public_api > unit/public_api.txt, and a line in CHANGELOG.md"
    )


def test_an_app_in_python_has_the_options_of_yaml() -> None:
    """Type checkers know every field that a topic and a consumer may have in YAML."""
    named = {"topic", "handler", "group", "strategies", "key", "version", "identity", "broker"}
    for options, model in ((TopicOptions, Topic), (ConsumerOptions, Consumer)):
        # Routes are declared by App.routes.
        fields = {field.alias or name for name, field in model.model_fields.items()} - named - {"routes"}
        assert fields - set(options.__annotations__) == set(), options.__name__


@pytest.mark.parametrize(
    "checker",
    [
        ("mypy", "--strict", str(TYPED_USAGE / "typical_app.py")),
        ("pyright", "-p", str(TYPED_USAGE), "--pythonpath", sys.executable),
    ],
    ids=["mypy", "pyright"],
)
def test_typical_code_is_typed(checker: tuple[str, ...]) -> None:
    """A type checker accepts what is right in typical code, and finds each line that is wrong."""
    name, *arguments = checker
    found = subprocess.run(
        [sys.executable, "-m", name, *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert found.returncode == 0, found.stdout + found.stderr
