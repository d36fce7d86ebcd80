"""The rules of this code base that no linter checks."""

import ast
import builtins
import inspect
import re
import subprocess
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType

import pytest

import house_rules
import oncemq.errors
from oncemq.engine.base.hook_points import (
    DELAYED_POINTS,
    ON_DEAD_POINTS,
    OUTBOX_POINTS,
    POINTS,
    TRANSACTION_POINTS,
)
from oncemq.errors import MissingExtra
from oncemq_adapters.rocketmq_client import errors as rocketmq_errors

ROOT = Path(__file__).parents[1]
SOURCES = {
    path.relative_to(ROOT).as_posix(): path
    for root in ("framework", "adapters", "strategies")
    for path in sorted((ROOT / root).rglob("*.py"))
}
LONGEST_FILE = 450
MUTABLE = (ast.List, ast.Dict, ast.Set, ast.ListComp, ast.DictComp, ast.SetComp)
MUTABLE_CALLS = {"list", "dict", "set", "defaultdict", "Counter", "deque", "OrderedDict", "WeakSet", "local"}
CONSTANT = re.compile(r"_*[A-Z0-9_]+|__all__|__slots__")
# Written in two parts, so that this file passes its own test.
FOREIGN = re.compile(
    "|".join(
        (
            r"\bsha" + r"red/",
            r"/wo" + r"rk/",
            r"/ho" + r"me/\w",
            r"\bhel" + r"per session",
            r"\bDES" + r"IGN\.md",
            r"\bTRA" + r"PS\.md",
            r"\bol" + r"ist",
            r"\bissue" + r" #?\d",
            r"\bcla" + r"ude\b",
            r"\bpypi\." + r"org",
        )
    ),
    re.IGNORECASE,
)


@pytest.fixture(scope="module")
def trees() -> dict[str, ast.Module]:
    """Every source file, parsed."""
    return {name: ast.parse(path.read_text()) for name, path in SOURCES.items()}


def test_no_source_file_is_longer_than_a_person_reads_at_once() -> None:
    """Four hundred and fifty lines are the most; what belongs together need not be torn apart below that."""
    lengths = {name: len(path.read_text().splitlines()) for name, path in SOURCES.items()}
    assert {name: length for name, length in lengths.items() if length > LONGEST_FILE} == {}


def test_no_assert_stands_outside_tests(trees: dict[str, ast.Module]) -> None:
    """`python -O` removes them; what must hold is checked and said with an error."""
    found = [
        f"{name}:{node.lineno}"
        for name, tree in trees.items()
        if not name.startswith("framework/oncemq/testing/")  # suites: their asserts are tests
        for node in ast.walk(tree)
        if isinstance(node, ast.Assert)
    ]
    assert found == []


def test_no_module_keeps_state(trees: dict[str, ast.Module]) -> None:
    """At module level only constants are bound: nothing mutable under a lower-case name, no `global`."""
    found = []
    for name, tree in trees.items():
        found += [f"{name}:{node.lineno}" for node in ast.walk(tree) if isinstance(node, ast.Global)]
        for node in tree.body:
            targets, value = _bound(node)
            if value is not None and _mutable(value):
                found += [
                    f"{name}:{node.lineno} {target}" for target in targets if not CONSTANT.fullmatch(target)
                ]
    assert found == []


def test_no_module_reads_the_environment_when_imported(trees: dict[str, ast.Module]) -> None:
    """What an import does may not depend on who imports."""
    found = [
        f"{name}:{node.lineno}"
        for name, tree in trees.items()
        for node in _executed_by_import(tree)
        if isinstance(node, ast.Attribute) and node.attr in {"environ", "getenv"}
    ]
    assert found == []


def test_no_module_changes_its_constants(trees: dict[str, ast.Module]) -> None:
    """A constant that is a list or a mapping is only read."""
    changing = {"append", "add", "update", "setdefault", "pop", "clear", "extend", "insert", "remove"}
    found = [
        f"{name}:{node.lineno}"
        for name, tree in trees.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in changing
        and isinstance(node.func.value, ast.Name)
        and re.fullmatch(r"_*[A-Z][A-Z0-9_]+", node.func.value.id)
    ]
    assert found == []


def test_the_project_speaks_of_itself_alone() -> None:
    """No file that is kept in version control names a machine, a workplace or a private note."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)
    found = []
    for name in filter(None, listed.stdout.split("\0")):
        path = ROOT / name
        if not path.is_file() or path.suffix in {".csv", ".svg"}:
            continue
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
            if FOREIGN.search(line):
                found.append(f"{name}:{number}: {line.strip()[:100]}")
    assert found == []


@pytest.mark.parametrize("group", ["oncemq.adapters", "oncemq.strategies", "console_scripts"])
def test_every_entry_point_loads(group: str) -> None:
    """What the distribution announces is there."""
    ours = [point for point in entry_points(group=group) if point.value.startswith("oncemq")]
    assert ours
    missing = []
    for point in ours:
        try:
            assert callable(point.load()), point
        except MissingExtra as error:
            missing.append(str(error))
    # Drivers on packages of one import name cannot all be installed here.
    assert [text for text in missing if "pip install 'oncemq[rocketmq-" not in text] == []


def test_every_named_point_is_told_somewhere(trees: dict[str, ast.Module]) -> None:
    """A test that kills the process at a point must not wait for one that never comes."""
    told = {
        node.args[0].value
        for tree in trees.values()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and "point" in ast.unparse(node.func)
        and node.args
        and isinstance(node.args[0], ast.Constant)
    }
    assert told == {*POINTS, *OUTBOX_POINTS, *ON_DEAD_POINTS, *DELAYED_POINTS, *TRANSACTION_POINTS}


@pytest.mark.parametrize("module", [oncemq.errors, rocketmq_errors])
def test_the_tree_of_errors_is_the_one_that_is_drawn(module: ModuleType) -> None:
    """The module's docstring shows every class below its parent, and says of one that is defined elsewhere where."""
    drawn: dict[str, str] = {}
    elsewhere: dict[str, str] = {}
    path: list[str] = []
    for line in (inspect.getdoc(module) or "").splitlines():
        match = re.match(r"(?P<lines>[│├└─ ]*)(?P<name>[A-Z]\w+)( {2,}|$)", line)
        if match:
            depth = len(match["lines"]) // 4
            path[depth:] = [match["name"]]
            place = re.search(r" (oncemq(?:\.\w+)+): ", line)
            if place:
                elsewhere[match["name"]] = place[1]
            else:
                drawn[match["name"]] = path[depth - 1] if depth else "Exception"
    real = {
        name: found.__bases__[0].__name__
        for name, found in vars(module).items()
        if inspect.isclass(found) and issubclass(found, Exception) and name not in vars(builtins)
    }
    assert drawn == real
    for name, place in elsewhere.items():
        assert issubclass(getattr(import_module(place), name), oncemq.errors.OnceMQError)


def test_every_error_derives_from_the_root(trees: dict[str, ast.Module]) -> None:
    """What can reach a user is an OnceMQError; the others are control flow that our own code catches.

    The client of RocketMQ, which needs nothing of the framework, has a root of its own.
    """
    inner = {"Culprits", "UnknownCulprit", "WrongValue", "UnfitTable", "BadLine", "Unsettled", "NotCanonical"}
    inner |= {"ProcessDied", "Unjudged", "UnusableSchema"}
    builtin = {name for name, found in vars(builtins).items() if inspect.isclass(found)}
    found = {
        node.name
        for tree in trees.values()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
        and any(
            base.id in builtin and issubclass(getattr(builtins, base.id), BaseException)
            for base in node.bases
            if isinstance(base, ast.Name)
        )
    }
    assert found - inner == {"OnceMQError", "RocketMQError"}


@pytest.fixture(scope="module")
def measured() -> house_rules.Counts:
    """What breaks the rules; measuring takes seconds."""
    return house_rules.measure(ROOT)


def test_the_layout_and_the_language_keep_their_rules(measured: house_rules.Counts) -> None:
    """At most 16 modules in a folder and 450 lines in a file, no tiny module, no cycle, plain words; listed ones may not grow."""
    assert house_rules.new(measured, house_rules.listed()) == []


def test_the_list_of_what_does_not_keep_the_rules_only_shrinks(measured: house_rules.Counts) -> None:
    """What keeps the rules now is struck from the list, by `python tests/house_rules.py --write`."""
    assert house_rules.paid(measured, house_rules.listed()) == []


@pytest.mark.parametrize(
    ("file", "text", "rule"),
    [
        ("framework/oncemq/long.py", '"""Long."""\n' + "x = 1\n" * 450, "lines in a file"),
        (
            "framework/oncemq/asks.py",
            '"""What it does."""\n',
            "module docstrings that begin with a question word",
        ),
        ("framework/oncemq/one.py", '"""Counts."""\none = 1\n', "locals called `one`"),
        ("framework/oncemq/words.py", '"""Asks no' + 'body."""\n', "words of no code base of this field"),
        ("framework/oncemq/tiny.py", '"""Tiny."""\n', "tiny modules with one importer"),
        ("framework/oncemq/circle.py", '"""Turns."""\nimport oncemq.user\n', "import cycles"),
        ("framework/oncemq/m17.py", '"""Fills."""\n', "modules in a folder"),
    ],
)
def test_each_rule_of_the_layout_finds_what_breaks_it(
    file: str, text: str, rule: str, tmp_path: Path
) -> None:
    """A file that breaks a rule is named, in a tree where nothing else does."""
    (tmp_path / file).parent.mkdir(parents=True)
    (tmp_path / file).write_text(text)
    module = Path(file).stem
    (tmp_path / "framework/oncemq/user.py").write_text(
        f'"""Uses."""\nimport oncemq.{module}\n' + "x = 1\n" * 40
    )
    for number in range(15 if module == "m17" else 0):
        (tmp_path / f"framework/oncemq/m{number}.py").write_text('"""Fills."""\n' + "x = 1\n" * 40)
    found = house_rules.measure(tmp_path)
    assert [
        name for name, places in found.items() if places and name != "tiny modules with one importer"
    ] == ([] if rule.startswith("tiny") else [rule])
    assert found[rule]


def _bound(node: ast.stmt) -> tuple[list[str], ast.expr | None]:
    if isinstance(node, ast.Assign):
        return [target.id for target in node.targets if isinstance(target, ast.Name)], node.value
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        return [node.target.id], node.value
    return [], None


def _mutable(value: ast.expr) -> bool:
    if isinstance(value, ast.Call):
        called = value.func.attr if isinstance(value.func, ast.Attribute) else getattr(value.func, "id", "")
        return called in MUTABLE_CALLS
    return isinstance(value, MUTABLE)


def _executed_by_import(tree: ast.Module) -> list[ast.AST]:
    """Return every node outside functions; class bodies run at import too."""
    found: list[ast.AST] = []
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        found.append(node)
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            waiting += ast.iter_child_nodes(node)
    return found
