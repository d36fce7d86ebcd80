"""The documentation says what the code says."""

import ast
import asyncio
import inspect
import re
import subprocess
import sys
import tomllib
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import create_engine, select

HOUSE = Path(__file__).parents[2]
ARCHITECTURE = (HOUSE / "docs" / "architecture.md").read_text()
SOURCES = (HOUSE, HOUSE / "framework/oncemq", HOUSE / "adapters", HOUSE / "strategies")
STRATEGIES = sorted(point.name for point in entry_points(group="oncemq.strategies"))


def _documented(name: str) -> str:
    (point,) = entry_points(group="oncemq.strategies", name=name)
    return inspect.getdoc(point.load()) or ""


@pytest.mark.parametrize("name", STRATEGIES)
def test_every_option_of_a_strategy_is_documented(name: str) -> None:
    """Its section in docs/strategies.md is its docstring; anyone who changes one changes both."""
    _, _, section = (HOUSE / "docs" / "strategies.md").read_text().partition(f"\n## `{name}`\n\n")
    assert section.partition("\n\n## ")[0].strip() == _documented(name)


@pytest.mark.parametrize("name", STRATEGIES)
def test_every_strategy_is_in_the_readme(name: str) -> None:
    """A newcomer sees all of them in one table."""
    assert f"\n| `{name}` |" in (HOUSE / "README.md").read_text()


def test_every_extra_is_on_a_page() -> None:
    """A user finds what `pip install oncemq[…]` may bring where it is needed."""
    project = tomllib.loads((HOUSE / "pyproject.toml").read_text())["project"]
    pages = [HOUSE / "README.md", *(HOUSE / "docs").glob("*.md")]
    named = set(re.findall(r"oncemq\[([a-z-]+)\]", "".join(page.read_text() for page in pages)))
    assert set(project["optional-dependencies"]) - {"dev", "bench", "docs"} <= named


def test_the_first_service_with_idempotent_requests_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first block of docs/requests.md is a whole service: a copy of a request gets the same answer, and one effect."""
    monkeypatch.chdir(tmp_path)
    block = re.search(r"```python\n(.*?)```", (HOUSE / "docs/requests.md").read_text(), re.DOTALL)
    assert block is not None
    found: dict[str, Any] = {"__name__": "shop_api"}
    exec(compile(block[1], "shop_api", "exec", dont_inherit=True), found)
    engine = create_engine("sqlite:///shop.db")
    found["Base"].metadata.create_all(engine)
    found["ledger"].create_tables()

    async def post_twice() -> list[int]:
        transport = httpx.ASGITransport(found["app"])
        async with httpx.AsyncClient(transport=transport, base_url="http://shop") as client:
            headers = {"Idempotency-Key": '"7"'}
            body = {"account": "a", "amount": 3}
            return [
                (await client.post("/payments", json=body, headers=headers)).status_code for _ in range(2)
            ]

    assert asyncio.run(post_twice()) == [201, 201]
    assert [found["welcome"](found["Order"](account="a", amount=1)) for _ in range(2)] == ["welcome"] * 2
    with engine.connect() as connection:
        assert sorted(connection.execute(select(found["Payment"].amount)).scalars()) == [-10, 3]


def test_every_place_on_the_architecture_page_is_there() -> None:
    """A file or folder that moves takes its place on the page along."""
    named = {name for name in re.findall(r"`([a-z_*/]+(?:\.py|/))`", ARCHITECTURE) if "/" in name}
    assert len(named) > 50
    assert (
        sorted(name for name in named if not any(any(root.glob(name.rstrip("/"))) for root in SOURCES)) == []
    )


MOST_FRAMES = 12
MOST_FILES = 25


def test_the_way_of_a_message_is_short_and_on_the_architecture_page() -> None:
    """The frames and files that the page lists are those that a message passes, and they are few."""
    # In a process of its own: which observers there are depends on the logging that is configured in a process.
    walk = subprocess.run(
        [sys.executable, "-m", "benchmarks.walk"], cwd=HOUSE, capture_output=True, text=True, check=True
    )
    way = [[line.strip() for line in block.split("\n")[1:]] for block in walk.stdout.split("\n\n")]
    page = [block.split("\n") for block in re.findall(r"```\n(.*?)\n```", ARCHITECTURE, re.DOTALL)]
    frames, files = ([line.strip() for line in lines] for lines in page)
    assert frames == way[0]
    assert sorted(files) == sorted(way[2])
    assert len(frames) <= MOST_FRAMES
    assert len([file for file in files if file.startswith("oncemq/engine/")]) <= MOST_FILES


def test_every_package_of_the_engine_is_on_the_architecture_page() -> None:
    """A reader finds each folder of the engine by name."""
    folders = {path.parent.name for path in (HOUSE / "framework/oncemq/engine").glob("*/__init__.py")}
    assert sorted(name for name in folders if f"engine/{name}/" not in ARCHITECTURE) == []


def test_every_answer_on_the_architecture_page_names_what_is_in_its_files() -> None:
    """A class or function that is renamed or moved takes the answer along."""
    answers = ARCHITECTURE.partition("## Questions")[2]
    missing = []
    for row in answers.splitlines():
        marked = re.findall(r"`([^`]+)`", row)
        files = [
            place for name in marked if name.endswith(".py") for root in SOURCES for place in root.glob(name)
        ]
        defined = {
            name for file in files for node in ast.walk(ast.parse(file.read_text())) for name in _names(node)
        }
        missing += [
            f"{row[:60]}: {name}"
            for name in marked
            if re.fullmatch(r"[A-Za-z_]+(\.[a-z_]+)?", name) and not set(name.split(".")) <= defined
        ]
    assert missing == []


def _names(node: ast.AST) -> list[str]:
    if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        return [node.name]
    return [node.attr] if isinstance(node, ast.Attribute) else []
