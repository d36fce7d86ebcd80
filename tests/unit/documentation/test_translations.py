"""A translation says which text it was made from."""

from pathlib import Path

import translations

ROOT = Path(__file__).parents[3]


def test_every_translation_names_its_source() -> None:
    """Whether it is older is shown by `make translations`; it does not fail a change of the source."""
    assert len(translations.pages(ROOT)) >= 4
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
