"""The projects that `init` writes."""

from pathlib import Path

import pytest
import yaml

from oncemq.cli.commands.init import BROKERS, DATABASES, STRATEGIES
from support.apps.command_line import run_program
from support.apps.warm import WarmProgram


def test_a_folder_that_cannot_be_written_is_a_sentence(tmp_path: Path) -> None:
    """No traceback: which folder, why, and what to do."""
    (tmp_path / "file").touch()
    refused = run_program("init", str(tmp_path / "file" / "shop"))
    assert refused.exit_code != 0
    assert f"cannot write into {tmp_path}/file/shop" in refused.stderr
    assert "Traceback" not in refused.stderr


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_project_passes_its_tests_and_takes_effect(strategy: str, tmp_path: Path) -> None:
    """Its tests pass, and its messages leave as many rows as its README says."""
    program = WarmProgram(tmp_path)
    shown = program.succeed("init", "--strategy", strategy)
    tests = program.python("-m", "pytest", "-q", "-p", "no:cacheprovider")
    assert tests.returncode == 0, tests.stdout
    program.succeed("tables", "create")
    assert program.python("handlers.py").returncode == 0
    topic = STRATEGIES[strategy].topic
    assert f"oncemq publish {topic} messages.jsonl" in shown
    program.succeed("publish", topic, "messages.jsonl")
    program.succeed("run", "--until-idle", "1s")
    expected = STRATEGIES[strategy].result.partition(",")[0]
    assert expected in program.python("handlers.py").stdout
    assert expected in (tmp_path / "README.md").read_text()


@pytest.mark.parametrize(("broker", "database"), [*zip(BROKERS, DATABASES, strict=True)])
def test_a_project_for_servers_is_right(broker: str, database: str, tmp_path: Path) -> None:
    """`check` accepts it, nothing is left to fill in, and compose.yaml has its servers and no others."""
    wrote = run_program("init", str(tmp_path), "--broker", broker, "--database", database)
    assert wrote.exit_code == 0
    assert "@" not in (tmp_path / "README.md").read_text()
    checked = WarmProgram(tmp_path).call("check")
    assert checked.returncode == 0, checked.stderr
    servers = {name for name in (broker, database) if name not in {"embedded", "sqlite"}}
    if not servers:
        assert not (tmp_path / "compose.yaml").exists()
        return
    services = set(yaml.safe_load((tmp_path / "compose.yaml").read_text())["services"])
    assert services == {*(servers - {"rocketmq"}), *({"namesrv", "broker"} if broker == "rocketmq" else ())}


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    """A file of the same name stops it before it writes anything."""
    (tmp_path / "pyproject.toml").touch()
    refused = run_program("init", str(tmp_path))
    assert "pyproject.toml is there already, and nothing was written" in refused.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["pyproject.toml"]
