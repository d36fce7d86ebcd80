"""The command `asyncapi`: where it writes, in which form, and what it says when it cannot."""

import json
import re
from pathlib import Path

import pytest
import yaml

from oncemq.cli.exit_codes import CONFIG, FAILED
from support.apps.command_line import CommandLine, run_program

ROOT = Path(__file__).parents[4]
PAGE = ROOT / "docs" / "asyncapi.md"


@pytest.fixture
def shop(tmp_path: Path) -> CommandLine:
    """An app in a folder of its own."""
    return CommandLine(tmp_path)


def test_the_document_is_printed_as_yaml(shop: CommandLine) -> None:
    """Without options it goes to standard output, in the order in which it is read."""
    done = shop.run("asyncapi", "--app-version", "2.1.0")
    assert done.exit_code == 0
    document = yaml.safe_load(done.stdout)
    assert list(document) == [
        *("asyncapi", "info", "defaultContentType"),
        *("servers", "channels", "operations", "components"),
    ]
    assert document["info"] == {"title": "loyalty", "version": "2.1.0"}
    assert "&id" not in done.stdout


@pytest.mark.parametrize(("name", "read"), [("a.json", json.loads), ("a.yaml", yaml.safe_load)])
def test_a_file_has_the_form_of_its_name(shop: CommandLine, tmp_path: Path, name: str, read) -> None:
    """`-o` writes JSON or YAML, the same document."""
    done = shop.run("asyncapi", "-o", str(tmp_path / name))
    assert (done.exit_code, done.stdout) == (0, "")
    assert read((tmp_path / name).read_text()) == yaml.safe_load(shop.run("asyncapi").stdout)


def test_a_file_that_cannot_be_written_is_one_clear_error(shop: CommandLine, tmp_path: Path) -> None:
    """The error names the file and the reason."""
    done = shop.run("asyncapi", "-o", str(tmp_path / "missing" / "a.yaml"))
    assert done.exit_code == FAILED
    assert "missing/a.yaml cannot be written: No such file or directory" in done.stderr


def test_an_app_with_errors_gets_no_document(shop: CommandLine) -> None:
    """The errors are those of `check`, with its exit code."""
    shop.app.write_text(shop.app.read_text().replace("handlers:award", "handlers:reward"))
    done = shop.run("asyncapi")
    assert (done.exit_code, done.stdout) == (CONFIG, "")
    assert "has no 'reward'" in done.stderr


def test_a_type_that_is_not_described_is_named(shop: CommandLine) -> None:
    """A warning on standard error names it; the document is written."""
    (shop.folder / "handlers.py").write_text(
        "from typing import Annotated\n"
        "from pydantic import GetPydanticSchema\n"
        "from pydantic_core import core_schema\n"
        "class Odd: ...\n"
        "Strange = Annotated[Odd, GetPydanticSchema(lambda _, __: core_schema.is_instance_schema(Odd))]\n"
        "def award(order: Strange) -> None: ...\n"
    )
    done = shop.run("asyncapi")
    assert done.exit_code == 0
    assert "Odd" in done.stderr
    assert "has no JSON Schema, so its payload is not described" in done.stderr


def test_the_page_shows_the_real_output(monkeypatch: pytest.MonkeyPatch) -> None:
    """The document in docs/asyncapi.md is what the command prints for examples/points."""
    monkeypatch.chdir(ROOT / "examples" / "points")
    for name in ("BROKER", "DATABASE"):
        monkeypatch.delenv(name, raising=False)
    shown = re.findall(r'```yaml title="asyncapi.yaml"\n(asyncapi: .*?)```', PAGE.read_text(), re.DOTALL)
    assert shown == [run_program("asyncapi").stdout]
