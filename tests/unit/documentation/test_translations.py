"""A translation says which text it was made from."""

import importlib
import re
from pathlib import Path

import pytest

import translations

ROOT = Path(__file__).parents[3]
_SHOWN = re.compile(r"^```\w+ title=\"([^\"]+)\"\n(.*?)^```", re.MULTILINE | re.DOTALL)
_WORDS = re.compile(r'\s*# .*|^""".*?"""', re.MULTILINE)
"""Comments, which a translation translates."""


def test_every_translation_names_its_source() -> None:
    """Whether it is older is shown by `make translations`; it does not fail a change of the source."""
    assert len(translations.pages(ROOT)) >= 17
    assert [line for line in translations.older(ROOT) if line.endswith("names no source")] == []


def test_a_changed_source_is_told(tmp_path: Path) -> None:
    """The page that is older is named with its source, until it is noted as translated."""
    (tmp_path / "README.md").write_text("One")
    (tmp_path / "README.zh-CN.md").write_text("<!-- translation of README.md, sha256 000000000000 -->\n一\n")
    assert translations.older(tmp_path) == ["README.zh-CN.md is older than README.md"]
    translations.write(tmp_path)
    assert translations.older(tmp_path) == []
    (tmp_path / "README.md").write_text("Two")
    assert translations.older(tmp_path) == ["README.zh-CN.md is older than README.md"]


def test_the_tutorial_and_every_strategy_are_translated() -> None:
    """Each page of docs/strategies and the tutorial have a page of the same name in Chinese."""
    wanted = {"tutorial.md", *(f"strategies/{page.name}" for page in (ROOT / "docs/strategies").glob("*.md"))}
    assert len(wanted) > 11
    assert sorted(name for name in wanted if not (ROOT / "docs/zh" / name).exists()) == []


def _code(page: Path) -> dict[str, str]:
    return {title: _WORDS.sub("", text) for title, text in _SHOWN.findall(page.read_text())}


@pytest.mark.parametrize("page", translations.pages(ROOT), ids=lambda page: page.relative_to(ROOT).as_posix())
def test_a_translation_shows_the_code_of_its_source(page: Path) -> None:
    """Files that a page shows differ in their comments only, so what the source's tests prove holds for the translation."""
    mark = translations.MARK.match(page.read_text())
    assert mark is not None
    assert _code(page) == _code(ROOT / mark[1])


def test_a_line_of_chinese_that_goes_on_gets_no_blank(monkeypatch: pytest.MonkeyPatch) -> None:
    """On the site lines of a paragraph are joined; code, lists and tables keep theirs."""
    monkeypatch.syspath_prepend(ROOT / "docs")
    joined = importlib.import_module("site_hooks")._BROKEN_LINE.sub
    assert joined("", "进程崩溃\n顺序。\n  `ACK`") == "进程崩溃顺序。`ACK`"
    kept = "# 写入\n```\n\n- 一。\n- 二。\n\n| 三 |\n| 四 |\n"
    assert joined("", kept) == kept
