"""What a seeded defect is: a small change of the source that breaks one guard, and the tests that must notice."""

import ast
import gc
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import CodeType

SOURCES = {"framework": "oncemq", "adapters": "oncemq_adapters", "strategies": "oncemq_strategies"}
"""Folders with source code, and the package in each."""


class DoesNotApply(Exception):
    """The source has changed so that a defect cannot be put into it any more."""


@dataclass(frozen=True, slots=True)
class Edit:
    """One replacement in one file.

    Args:
        file: from the folder of the sources.
        old: stands there exactly once; as short as is unmistakable, so that unrelated changes do not matter.
        new: stands there instead.
    """

    file: str
    old: str
    new: str

    def apply(self, tree: Path) -> None:
        """Change the file in `tree`.

        Raises:
            DoesNotApply: the old text is not there, or more than once; or what comes out is not Python, or does the same.
        """
        path = tree / self.file
        if not path.is_file():
            raise DoesNotApply(f"{self.file} is not there any more")
        source = path.read_text()
        found = source.count(self.old)
        if found != 1:
            raise DoesNotApply(f"{self.file} holds {found} times, not once: {self.old!r}")
        changed = source.replace(self.old, self.new)
        try:
            same = _compiled(changed, self.file) == _compiled(source, self.file)
        except SyntaxError as error:
            raise DoesNotApply(f"{self.file} is no Python with it: {error}") from error
        if same:
            raise DoesNotApply(f"{self.file} does the same with it: {self.new!r}")
        path.write_text(changed)


@dataclass(frozen=True, slots=True)
class Defect:
    """One guard broken.

    Args:
        name: for `--only`.
        breaks: the rule that no longer holds, as a rule.
        edits: what to change.
        tests: pytest's names of the fewest tests that must notice, quickest first.
    """

    name: str
    breaks: str
    edits: Sequence[Edit]
    tests: Sequence[str]

    def apply(self, tree: Path) -> None:
        """Change the sources in `tree`.

        Raises:
            DoesNotApply: they have changed too much.
        """
        for edit in self.edits:
            edit.apply(tree)


def parsed(source: str) -> ast.Module:
    """Return the syntax tree of a source, made without a garbage collection in between.

    A collection runs finalizers and callbacks. When one of these formats a traceback, Python 3.11 parses for that, too, and
    `ast.parse`, which counts how deep it is in one place for all, raises SystemError.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        return ast.parse(source)
    finally:
        if enabled:
            gc.enable()


@lru_cache(maxsize=128)
def _compiled(source: str, file: str) -> CodeType:
    """Return what a source compiles to, without the places of its lines; many defects edit one file.

    Syntax trees say the same, and take ten times as long to compare.
    """
    return _without_places(compile(source, file, "exec", dont_inherit=True))


def _without_places(code: CodeType) -> CodeType:
    parts = tuple(_without_places(part) if isinstance(part, CodeType) else part for part in code.co_consts)
    return code.replace(co_firstlineno=1, co_linetable=b"", co_consts=parts)


def told_apart(*defects: Defect) -> tuple[Defect, ...]:
    """Return the defects.

    Raises:
        ValueError: two have one name, by which commands and docs/guarantees.md know them, or make one change.
    """
    names = Counter(defect.name for defect in defects)
    twice = sorted(name for name, count in names.items() if count > 1)
    if twice:
        raise ValueError(f"more than one defect is called {', '.join(twice)}: give each a name of its own")
    changes: dict[tuple[Edit, ...], str] = {}
    for defect in defects:
        other = changes.setdefault(tuple(defect.edits), defect.name)
        if other != defect.name:
            raise ValueError(
                f"{other} and {defect.name} make the same change: keep one, with the tests of both"
            )
    return defects
