"""Parts of files that pages show without a test of their own: settings are known, names can be imported."""

import ast
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from support.apps.command_line import run_program

ROOT = Path(__file__).parents[3]
PAGES = sorted([*ROOT.glob("README*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/*/README.md")])
_PART = re.compile(r"^( *)```(\w+)\n(.*?)^\1```", re.MULTILINE | re.DOTALL)
_SCHEMA: dict[str, Any] = json.loads(run_program("schema").stdout)


def _parts(language: str) -> list[Any]:
    return [
        pytest.param(re.sub(rf"^{indent}", "", text, flags=re.MULTILINE), id=f"{page.stem}-{number}")
        for page in PAGES
        for number, (indent, found, text) in enumerate(_PART.findall(page.read_text()))
        if found == language
    ]


def _unknown(value: Any, form: dict[str, Any]) -> list[str]:
    """Return what a form of the JSON Schema says against a value that may lack what is required."""
    whole = {**form, "$defs": _SCHEMA["$defs"]}
    whole.pop("required", None)
    return [f"{error.json_path}: {error.message}" for error in Draft202012Validator(whole).iter_errors(value)]


@pytest.mark.parametrize("text", _parts("yaml"))
def test_shown_settings_are_those_of_the_schema(text: str) -> None:
    """A part of an app.yaml is one at its top, of a topic, of a consumer or of its defaults."""
    # As editors do: a name such as 1 is text in JSON.
    value = json.loads(json.dumps(yaml.safe_load(text)))
    forms = [_SCHEMA, *(_SCHEMA["$defs"][name] for name in ("Topic", "Consumer", "Defaults"))]
    fitting = [form for form in forms if value.keys() <= form["properties"].keys()]
    assert fitting, f"no part of an app.yaml has all of these: {', '.join(value)}"
    assert min((_unknown(value, form) for form in fitting), key=len) == []


@pytest.mark.parametrize("text", _parts("python"))
def test_shown_names_can_be_imported(text: str) -> None:
    """What a part of a program imports from OnceMQ is there."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "oncemq":
            exec(compile(ast.Module([node], []), "page", "exec", dont_inherit=True), {})


def test_the_commands_of_the_flask_page_start_its_application(tmp_path: Path) -> None:
    """The program makes the tables, and Flask finds the factory by the words that the page shows."""
    page = (ROOT / "docs/frameworks/flask.md").read_text()
    for name, text in re.findall(r"^```\w+ title=\"([^\"]+)\"\n(.*?)^```", page, re.MULTILINE | re.DOTALL):
        (tmp_path / name).write_text(text)
    tables, serve = (
        shlex.split(line, comments=True)
        for line in re.findall(r"^    ((?:python|flask) .*)$", page, re.MULTILINE)
    )
    commands = (
        [sys.executable, tables[1]],
        [sys.executable, "-m", "flask", *serve[1:-1], "routes"],
    )
    said = [
        subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
        for command in commands
    ]
    assert "/payments" in said[-1]
