"""Parts of programs on the pages of the documentation, and what each takes for granted when it runs."""

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import sqlalchemy
from sqlalchemy.orm import Session

import oncemq
from support.apps.page_tables import Account, Event, Order, Payment, Points, User

ROOT = Path(__file__).parents[3]
_PART = re.compile(r"^( *)```python\n(.*?)^\1```", re.MULTILINE | re.DOTALL)


class Part(NamedTuple):
    """A part of a page."""

    page: str
    words: str

    @property
    def text(self) -> str:
        """Its code."""
        (text,) = [text for page, text in parts() if page == self.page and self.words in text]
        return text

    def run(self, change: tuple[str, str] = ("", ""), **names: Any) -> SimpleNamespace:
        """Execute it, and return its names.

        Args:
            change: an address on the page, and the test's own.
            names: what the page takes for granted, beside OnceMQ's, SQLAlchemy's and the tables.
        """
        usual = {name: getattr(oncemq, name) for name in oncemq.__all__}
        tables = {kind.__name__: kind for kind in (Points, Payment, Order, Account, User)}
        payloads = dict.fromkeys(("OrderPaid", "OrderPlaced", "PaymentDue"), Event)
        space = {
            **usual,
            **tables,
            **payloads,
            **vars(sqlalchemy),
            "oncemq": oncemq,
            "Session": Session,
            **names,
        }
        exec(compile(self.text.replace(*change), self.page, "exec", dont_inherit=True), space)
        return SimpleNamespace(**{name: value for name, value in space.items() if name.isidentifier()})


def parts() -> list[tuple[str, str]]:
    """Return page and code of every part; translations show the same."""
    pages = sorted([ROOT / "README.md", *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/*/README.md")])
    return [
        (page.relative_to(ROOT).as_posix(), re.sub(rf"^{indent}", "", text, flags=re.MULTILINE))
        for page in pages
        if "docs/zh/" not in page.as_posix()
        for indent, text in _PART.findall(page.read_text())
    ]
