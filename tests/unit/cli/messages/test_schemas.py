"""The commands `schemas`: what is registered from files, types and YAML, and whether new versions are compatible."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from oncemq import App
from oncemq.cli.exit_codes import CONFIG, FAILED
from support.apps.command_line import run_program

APP = """
app: shop
brokers: {local: {url: "embedded://schemas-in-memory"}}
topics:
  order.paid: {key: body.order_id, strategies: [none]%s}
  order.shipped: {key: body.order_id, strategies: [none]}
%s
"""
MODELS = """
from pydantic import BaseModel, ConfigDict


class Paid(BaseModel):
    order_id: str
    amount: int
    user: str | None = None


def pay(order: dict) -> None:
    pass
"""
FIRST = {
    "type": "object",
    "properties": {"order_id": {"type": "string"}, "amount": {"type": "integer"}},
    "required": ["order_id", "amount"],
}
SECOND = {**FIRST, "properties": {**FIRST["properties"], "amount": {"type": "number"}}}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with two versions of a schema and a model."""
    (tmp_path / "schemas").mkdir()
    (tmp_path / "registered_models.py").write_text(MODELS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(__import__("sys").modules, "registered_models", raising=False)
    write("order.paid.v1.json", FIRST)
    write("order.paid.v2.json", SECOND)
    app()
    return tmp_path


def write(name: str, schema: Any) -> None:
    """Write a schema into the folder `schemas`."""
    Path("schemas", name).write_text(schema if isinstance(schema, str) else json.dumps(schema))


def app(schemas: str = "schemas: schemas", topic: str = "") -> None:
    """Write app.yaml."""
    Path("app.yaml").write_text(APP % (topic, schemas))


def test_a_compatible_version_passes(folder: Path) -> None:
    """An integer may become a number: new consumers read old bodies."""
    done = run_program("schemas", "check")
    assert done.exit_code == 0
    assert done.stdout.splitlines() == [
        "order.paid: bodies of v1 can be read as v2",
        "1 comparison, 0 failed",
    ]


def test_an_incompatible_version_fails_in_words(folder: Path) -> None:
    """The field, what both versions say about it, and both files; exit code 1."""
    app(topic=", compatibility: full")
    done = run_program("schemas", "check")
    assert done.exit_code == FAILED
    assert done.stdout.splitlines()[1:] == [
        "order.paid: bodies of v2 cannot all be read as v1",
        "  amount: v2 allows number, v1 accepts only integer",
        "  (v2: schemas/order.paid.v2.json, v1: schemas/order.paid.v1.json)",
        "2 comparisons, 1 failed",
    ]


def test_a_topic_has_its_own_level(folder: Path) -> None:
    """What a topic says goes before the level of `schemas:`; a level of none compares nothing."""
    app("schemas: {folder: schemas, compatibility: full}", ", compatibility: none")
    done = run_program("schemas", "check")
    assert done.exit_code == 0
    assert "order.paid: 2 versions, level none: nothing to compare" in done.stdout


def test_what_cannot_be_judged_fails_unless_it_may_pass(folder: Path) -> None:
    """It is named; `--pass-unjudged` is for teams that look at it themselves, and passes nothing that breaks."""
    write("order.paid.v3.json", {"allOf": [SECOND, {"required": ["user"]}]})
    done = run_program("schemas", "check")
    assert done.exit_code == FAILED
    assert "order.paid: whether all can be read" not in done.stdout
    assert "bodies of v2: whether all can be read as v3 cannot be judged" in done.stdout
    assert "  cannot be judged: `allOf` in v3" in done.stdout
    assert run_program("schemas", "check", "--pass-unjudged").exit_code == 0
    write("order.paid.v4.json", FIRST)
    app("schemas: {folder: schemas, compatibility: backward_transitive}")
    assert run_program("schemas", "check", "--pass-unjudged").exit_code == FAILED


def test_an_optional_field_may_be_added_where_producers_send_what_they_declare(folder: Path) -> None:
    """As JSON Schema has it, an undeclared field may hold anything; `undeclared_fields: never` rules that out."""
    write("order.paid.v2.json", {**FIRST, "properties": {**FIRST["properties"], "user": {"type": "string"}}})
    done = run_program("schemas", "check")
    assert done.exit_code == FAILED
    assert "user: v1 allows fields that it does not declare" in done.stdout
    app("schemas: {folder: schemas, undeclared_fields: never}")
    assert run_program("schemas", "check").exit_code == 0


def test_handlers_are_not_imported(folder: Path) -> None:
    """A job in CI needs no package of the handlers: a consumer whose module is missing keeps nothing from being compared."""
    with Path("app.yaml").open("a") as file:
        file.write('consumers: {c: {topic: order.paid, handler: "not_there:handle"}}\n')
    assert run_program("schemas", "check").exit_code == 0
    assert run_program("check").exit_code == CONFIG


def test_a_script_reads_the_differences(folder: Path) -> None:
    """`--json` has one object for each comparison."""
    app(topic=", compatibility: forward")
    (line,) = run_program("schemas", "check", "order.paid", "--json").stdout.splitlines()
    assert json.loads(line) == {
        "topic": "order.paid",
        "compatibility": "forward",
        "written": 2,
        "read": 1,
        "compatible": False,
        "differences": [
            {"path": "amount", "text": "v2 allows number, v1 accepts only integer", "judged": True}
        ],
    }


def test_types_files_and_schemas_are_versions(folder: Path) -> None:
    """Below `versions` each may be a file, a model by its name, or a schema; all are listed with their places."""
    app(
        "schemas:\n  versions:\n    order.paid: {1: schemas/order.paid.v1.json, 2: registered_models:Paid}\n"
        "    order.shipped: {1: {type: object, required: [order_id]}}"
    )
    done = run_program("schemas", "list", "--json")
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(row["topic"], row["version"], row["place"]) for row in rows] == [
        ("order.paid", 1, "app.yaml:9:18"),
        ("order.paid", 2, "app.yaml:9:49"),
        ("order.shipped", 1, "app.yaml:10:21"),
    ]
    shown = json.loads(run_program("schemas", "show", "order.paid").stdout)
    assert shown["required"] == ["order_id", "amount"]
    assert json.loads(run_program("schemas", "show", "order.paid", "--version", "1").stdout) == FIRST


def test_a_model_may_not_break_what_was_registered(folder: Path) -> None:
    """The schema that a model generates is compared as any other."""
    app(
        "schemas:\n  undeclared_fields: never\n  versions:\n"
        "    order.paid: {1: schemas/order.paid.v1.json, 2: registered_models:Paid}"
    )
    assert run_program("schemas", "check").exit_code == 0
    Path("registered_models.py").write_text(MODELS.replace("str | None = None", "str"))
    __import__("sys").modules.pop("registered_models")
    done = run_program("schemas", "check")
    assert done.exit_code == FAILED
    assert "user: v2 requires it, v1 does not" in done.stdout


MISTAKES = {
    "twice": (
        {"order.paid.v2.yaml": "type: object\n"},
        "app.yaml:7:10: v2 of 'order.paid' is registered twice: in schemas/order.paid.v2.json and in schemas/order.paid.v2.yaml",
    ),
    "no version": (
        {"order.json": "{}"},
        "schemas/order.json: names no topic and version – name it after topic and version",
    ),
    "another $id": (
        {"order.paid.v3.json": '{"$id": "https://example.org/order.paid.v4.json"}'},
        "schemas/order.paid.v3.json: its name says v3 of 'order.paid', its $id says v4 of 'order.paid'",
    ),
    "no JSON": ({"order.paid.v3.json": '{"type": }'}, "schemas/order.paid.v3.json:1:10: is not JSON"),
    "a key twice": (
        {"order.paid.v3.json": '{"type": "object", "type": "string"}'},
        "schemas/order.paid.v3.json: is not JSON: 'type' stands there twice",
    ),
    "no YAML": ({"order.paid.v3.yaml": "a: [\n"}, "schemas/order.paid.v3.yaml:"),
    "no schema": (
        {"order.paid.v3.json": '{"type": "objekt"}'},
        'schemas/order.paid.v3.json: is no usable JSON Schema: there is no type "objekt"',
    ),
    "not UTF-8": ({"order.paid.v3.json": b"\xff"}, "schemas/order.paid.v3.json: not UTF-8"),
    "too deep": ({"order.paid.v3.json": "[" * 100_000}, "schemas/order.paid.v3.json: is not JSON"),
}


@pytest.mark.parametrize("name", MISTAKES)
@pytest.mark.parametrize("command", [["schemas", "check"], ["check"]], ids=["schemas", "check"])
def test_a_mistake_in_a_file_is_explained_at_its_place(folder: Path, name: str, command: list[str]) -> None:
    """Nothing starts with a registry that is not what its author meant; `check` says the same."""
    files, text = MISTAKES[name]
    for file, content in files.items():
        Path("schemas", file).write_bytes(content if isinstance(content, bytes) else content.encode())
    done = run_program(*command)
    assert done.exit_code == CONFIG
    assert text in done.stderr


@pytest.mark.parametrize(
    ("schemas", "topic", "text"),
    [
        ("schemas: nowhere", "", "nowhere: there is no such folder of schemas"),
        ("", ", compatibility: full", "the app has no schemas that could be compatible"),
        ("schemas: schemas", ", compatibility: fulll", "'fulll' is not possible here"),
        (
            "schemas: {versions: {oder.paid: {1: schemas/order.paid.v1.json}}}",
            "",
            "did you mean 'order.paid'?",
        ),
        ("schemas: {versions: {order.paid: {first: a.json}}}", "", "'first' cannot be a version"),
        ("schemas: {versions: {order.paid: {1: a.json}}}", "", "a.json: cannot be read"),
        ("schemas: {versions: {order.paid: {1: registered_models:Piad}}}", "", "has no 'Piad'"),
        ("schemas: {versions: {order.paid: {1: registered_models:MODELS}}}", "", "has no 'MODELS'"),
        ("schemas: {versions: {order.paid: {1: json:dumps}}}", "", "no JSON Schema can be made of it"),
        ("schemas: {versions: {order.paid: {1: {type: text}}}}", "", 'there is no type "text"'),
        ("schemas: {fodler: schemas}", "", "did you mean 'folder'?"),
    ],
)
def test_a_mistake_in_the_app_is_explained(folder: Path, schemas: str, topic: str, text: str) -> None:
    """Each error says what is wrong and what to write."""
    app(schemas, topic)
    done = run_program("check")
    assert done.exit_code == CONFIG
    assert text in done.stderr


def test_an_unknown_topic_and_version_are_answered(folder: Path) -> None:
    """The error names what is registered; an app without schemas is told how to begin."""
    assert "did you mean 'order.paid'?" in run_program("schemas", "check", "oder.paid").stderr
    assert "registered are v1, v2" in run_program("schemas", "show", "order.paid", "--version", "3").stderr
    app("")
    assert "write schemas: and the folder" in run_program("schemas", "check").stderr
    assert run_program("schemas", "list").exit_code == 0


def test_an_app_in_python_registers_the_same(folder: Path) -> None:
    """`App(schemas=…)` and `compatibility=` mean the same as in YAML."""
    shop = App(
        "shop",
        brokers={"local": "embedded://schemas-in-code"},
        schemas={"versions": {"order.paid": {1: FIRST, 2: SECOND}}},
    )
    shop.topic("order.paid", key="body.order_id", strategies=["none"], compatibility="backward")
    assert [version.schema for version in shop.load().registry.versions("order.paid")] == [FIRST, SECOND]


def test_the_page_shows_the_real_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The files of docs/schemas.md, and what the command prints for them."""
    page = (Path(__file__).parents[4] / "docs" / "schemas.md").read_text()
    for name, text in re.findall(r"```\w+ title=\"([^\"]+)\"\n(.*?)```", page, re.DOTALL):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    done = run_program("schemas", "check")
    assert done.exit_code == FAILED
    assert re.findall(r"```text\n(order.paid: .*?)```", page, re.DOTALL) == [done.stdout]


def test_a_file_for_no_topic_of_the_app_is_told(folder: Path) -> None:
    """A typo in a name would leave the new version uncompared; a folder of several apps is no error."""
    (folder / "schemas" / "order.paid.v2.json").rename(folder / "schemas" / "order.piad.v2.json")
    done = run_program("schemas", "check")
    assert done.exit_code == 0, done.output
    assert "'order.piad' is not a topic of this app; did you mean 'order.paid'" in done.stderr


CONSUMED = 'consumers: {pay: {topic: order.paid, handler: "registered_models:pay"}}\n'


@pytest.mark.parametrize(
    ("schemas", "topic", "place"),
    [
        ("schemas: schemas\n", ", compatibility: full", "app.yaml:5:71"),
        ("schemas: {folder: schemas, compatibility: forward}\n", "", "app.yaml:7:43"),
    ],
    ids=["of a topic", "of all topics"],
)
def test_an_app_does_not_start_with_versions_that_break_their_level(
    folder: Path, schemas: str, topic: str, place: str
) -> None:
    """What is declared is checked where an app with consumers is loaded, and is refused at its line."""
    app(f"{schemas}{CONSUMED}", topic)
    done = run_program("check")
    assert done.exit_code == CONFIG
    assert re.search(
        rf"{re.escape(place)}: order.paid is declared (full|forward), and bodies of v2 \(schemas/order.paid.v2.json\) cannot all be "
        r"read as v1 \(schemas/order.paid.v1.json\): amount: v2 allows number, v1 accepts only integer",
        done.stderr,
    ), done.stderr


def test_a_level_that_no_one_declared_keeps_no_app_from_its_start(folder: Path) -> None:
    """By default `schemas check` alone compares: an app with functions between its versions goes on."""
    write("order.paid.v2.json", {"type": "string"})
    app(f"schemas: schemas\n{CONSUMED}")
    assert run_program("check").exit_code == 0
    assert run_program("schemas", "check").exit_code == FAILED


def test_a_file_is_published_only_if_its_bodies_are_what_their_versions_allow(folder: Path) -> None:
    """A line that consumers would refuse is a bad line, with its number; nothing is sent."""
    app("schemas: schemas", ", body_version: 2")
    Path("lines.jsonl").write_text('{"order_id": "a", "amount": 1}\n{"order_id": "b", "amount": "1"}\n')
    done = run_program("publish", "order.paid", "lines.jsonl")
    assert done.exit_code == FAILED
    assert (
        "lines.jsonl:2: message 'b' of topic 'order.paid': its body of version 2" in done.stdout + done.stderr
    )
    assert "nothing published: 1 bad line" in done.stdout + done.stderr
