"""Measures the rules of the layout and of the language, and lists what does not keep them yet.

`python tests/house_rules.py` prints what is found and not listed; with `--write` the list is lowered to what is found.
"""

import ast
import json
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).parents[1]
DEBTS = Path(__file__).with_name("house_debts.json")
SOURCE_ROOTS = ("framework", "adapters", "strategies")
MOST_MODULES = 16
LONGEST = 450
TINY = 40
QUESTION = {
    "what",
    "who",
    "which",
    "how",
    "whether",
    "where",
    "whose",
    "when",
    "why",
    "from",
    "between",
    "is",
}
# Written in two parts, so that this file passes its own test.
FOREIGN_ENGLISH = re.compile(
    "|".join(
        (
            r"\bwho" + r"ever\b",
            r"\b(?:no|some|every)" + r"body\b",
            r"\ba" + r"new\b",
            r"\bin va" + r"in\b",
            r"\bstands? st" + r"ill\b",
        )
    ),
    re.IGNORECASE,
)

Counts = dict[str, dict[str, int]]


def measure(root: Path) -> Counts:
    """Return what breaks each rule: {rule: {file, folder or module: how much of it}}."""
    files = {path.relative_to(root).as_posix(): path for path in _python_files(root)}
    sources = {name: path for name, path in files.items() if name.startswith(SOURCE_ROOTS)}
    texts = {name: path.read_text() for name, path in files.items()}
    trees = {name: ast.parse(text) for name, text in texts.items()}
    found: dict[str, Counter[str]] = defaultdict(Counter)
    for name in files:
        if Path(name).name not in {"__init__.py", "__main__.py", "conftest.py"}:
            found["modules in a folder"][str(Path(name).parent)] += 1
    found["modules in a folder"] = Counter(
        {folder: count for folder, count in found["modules in a folder"].items() if count > MOST_MODULES}
    )
    for name, text in texts.items():
        lines = len(text.splitlines())
        if lines > LONGEST:
            found["lines in a file"][name] = lines
        found["words of no code base of this field"][name] = len(FOREIGN_ENGLISH.findall(text))
        found["locals called `one`"][name] = _ones(trees[name])
        if name in sources and _asks(trees[name]):
            found["module docstrings that begin with a question word"][name] = 1
    imports = _imports({name: trees[name] for name in sources})
    for name, importers in _importers(imports).items():
        inside = {other for other in importers if Path(other).name != "__init__.py"}
        if len(texts[name].splitlines()) < TINY and len(importers) == len(inside) == 1:
            (only,) = inside
            if Path(only).parent == Path(name).parent and Path(name).name != "__init__.py":
                found["tiny modules with one importer"][name] = len(texts[name].splitlines())
    for cycle in _cycles(imports):
        found["import cycles"][" ".join(sorted(cycle))] = len(cycle)
    return {
        rule: {place: count for place, count in sorted(counts.items()) if count}
        for rule, counts in found.items()
    }


def listed() -> Counts:
    """Return what is known not to keep the rules yet."""
    debts: Counts = json.loads(DEBTS.read_text())
    return debts


def new(found: Mapping[str, Mapping[str, int]], debts: Mapping[str, Mapping[str, int]]) -> list[str]:
    """Return a line for each place that breaks a rule and is not listed, or breaks it more than listed."""
    return [
        f"{rule}: {place} ({count}, listed {debts.get(rule, {}).get(place, 0)})"
        for rule, places in found.items()
        for place, count in places.items()
        if count > debts.get(rule, {}).get(place, 0)
    ]


def paid(found: Mapping[str, Mapping[str, int]], debts: Mapping[str, Mapping[str, int]]) -> list[str]:
    """Return a line for each place that is listed and keeps the rule now."""
    return [
        f"{rule}: {place}"
        for rule, places in debts.items()
        for place in places
        if not found.get(rule, {}).get(place, 0)
    ]


def _python_files(root: Path) -> Iterator[Path]:
    for folder in (*SOURCE_ROOTS, "tests", "benchmarks", "examples"):
        yield from sorted((root / folder).rglob("*.py"))


def _asks(tree: ast.Module) -> bool:
    words = (ast.get_docstring(tree) or "").split()
    return bool(words) and words[0].lower() in QUESTION


def _ones(tree: ast.Module) -> int:
    return sum(
        isinstance(node, ast.Name) and node.id == "one" and isinstance(node.ctx, ast.Store)
        for node in ast.walk(tree)
    )


def _module(name: str) -> str:
    parts = Path(name).with_suffix("").parts[1:]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _imports(trees: Mapping[str, ast.Module]) -> dict[str, set[str]]:
    """Return which file imports which, type-checking imports and those inside functions included."""
    files = {_module(name): name for name in trees}
    found: dict[str, set[str]] = {name: set() for name in trees}
    for name, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module:
                asked = [(f"{node.module}.{alias.name}", node.module) for alias in node.names]
                found[name] |= {files.get(full, files.get(module, "")) for full, module in asked}
            elif isinstance(node, ast.Import):
                found[name] |= {files.get(alias.name, "") for alias in node.names}
        found[name] -= {"", name}
    return found


def _importers(imports: Mapping[str, set[str]]) -> dict[str, set[str]]:
    importers: dict[str, set[str]] = {name: set() for name in imports}
    for name, imported in imports.items():
        for other in imported:
            importers[other].add(name)
    return importers


def _cycles(imports: Mapping[str, set[str]]) -> list[set[str]]:
    """Return the groups of files that import each other in a circle, by taking away what has no import left."""
    left = {name: set(others) for name, others in imports.items()}
    while ends := [name for name, others in left.items() if not others & left.keys()]:
        for name in ends:
            del left[name]
    return [set(left)] if left else []


def main() -> int:
    """Print what is new, or write the list; returns 1 when something is new and not written."""
    found = measure(ROOT)
    if "--write" in sys.argv[1:]:
        DEBTS.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")
        return 0
    lines = new(found, listed())
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
