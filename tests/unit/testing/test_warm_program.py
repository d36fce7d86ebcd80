"""A command of a warm program is the command of a real one."""

from pathlib import Path

import pytest

from support.apps.program import Program
from support.apps.warm import WarmProgram

APP = "app: shop\nbrokers: {main: {url: 'embedded:///broker.db'}}\ntopics: {orders: {key: body.id, strategies: [none]}}\n"


@pytest.mark.parametrize(
    ("arguments", "stdin"),
    [
        (("--version",), None),
        (("rnu",), None),
        (("-f", "nowhere.yaml", "check"), None),
        (("publish", "orders"), '{"id": 1}\n{"id": 2}\n'),
    ],
    ids=["a version", "a wrong command", "a missing file", "standard input"],
)
def test_a_warm_command_is_a_real_one(tmp_path: Path, arguments: tuple[str, ...], stdin: str | None) -> None:
    """It reads what it is given, prints the same and ends with the same code, in the folder and with the variables of the test."""
    (tmp_path / "app.yaml").write_text(APP)
    done = [program(tmp_path).call(*arguments, stdin=stdin) for program in (Program, WarmProgram)]
    said = [(result.returncode, result.stdout, result.stderr) for result in done]
    assert said[1] == said[0]
