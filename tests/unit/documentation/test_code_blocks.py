"""Code on the pages of the documentation works."""

import json
import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import click
import pytest
import yaml

from oncemq.cli.main import oncemq as program

ROOT = Path(__file__).parents[3]
PAGES = sorted([*ROOT.glob("README*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/*/README.md")])
_FENCE = re.compile(r"^( *)```(\w+)(?: title=\"([^\"]+)\")?[^\n]*\n(.*?)^\1```", re.MULTILINE | re.DOTALL)
_COMMAND = re.compile(r"^(?:    |\$ |    \$ )?(oncemq(?: [^\n#|>]*)?)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Block:
    """One block of code of a page."""

    language: str
    title: str
    text: str


def _name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def _blocks(page: Path) -> list[Block]:
    return [
        Block(language, title, re.sub(rf"^{indent}", "", text, flags=re.MULTILINE))
        for indent, language, title, text in _FENCE.findall(page.read_text())
    ]


def _read(block: Block) -> None:
    if block.language == "python":
        compile(block.text, "page", "exec", dont_inherit=True)
    elif block.language == "yaml" and "{{" not in block.text:
        list(yaml.safe_load_all(block.text))
    elif block.language == "json":
        json.loads(block.text)


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_every_block_can_be_read(page: Path) -> None:
    """Python compiles, YAML and JSON parse; a file that a page shows has one text there."""
    blocks = _blocks(page)
    for block in blocks:
        _read(block)
    titles = [block.title for block in blocks if block.title]
    assert len(titles) == len(set(titles))


def _unknown(words: list[str]) -> str:
    """Return what is not there of a command line, or nothing."""
    command: click.Command = program
    context = click.Context(program, info_name="oncemq")
    words = [word for word in words if word not in {"…", "[...]"}]
    while words:
        word = words.pop(0)
        if word.startswith("-"):
            option = word.partition("=")[0]
            found = next(
                (each for each in command.params if option in (*each.opts, *each.secondary_opts)), None
            )
            if found is None and option not in {"--help", "-h", "--version"}:
                return option
            if isinstance(found, click.Option) and not found.is_flag and "=" not in word and words:
                words.pop(0)
        elif isinstance(command, click.Group):
            below = command.get_command(context, word)
            if below is None:
                return word
            command = below
    return ""


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_every_command_is_there(page: Path) -> None:
    """Commands and options of `oncemq` that a page shows exist."""
    text = re.sub(
        r"```(?:text|python|yaml|toml|json|dockerfile|ini)\b.*?```", "", page.read_text(), flags=re.DOTALL
    )
    wrong = []
    for line in _COMMAND.findall(text):
        for part in re.split(r"&&|;", line):
            words = shlex.split(part.strip())
            if words[:1] == ["oncemq"] and (missing := _unknown(words[1:])):
                wrong.append(f"{part.strip()}: {missing}")
    assert wrong == []


def test_every_page_that_shows_a_test_passes_it(tmp_path: Path, redis_url: str) -> None:
    """The files that a page shows, in a folder of their own, pass the test that it shows with them.

    Translations show the same code, which test_translations.py compares.
    """
    shown = 0
    for page in (page for page in PAGES if "docs/zh/" not in _name(page)):
        files = [block for block in _blocks(page) if block.title]
        if not any(re.fullmatch(r"test_\w+\.py", block.title) for block in files):
            continue
        shown += 1
        folder = tmp_path / _name(page).removesuffix(".md").replace("/", "-")
        for block in files:
            path = folder / block.title
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text)
    assert shown > 10
    environment = dict(os.environ) | {"REDIS": redis_url}
    ran = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "--rootdir",
            str(tmp_path),
            str(tmp_path),
        ],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
