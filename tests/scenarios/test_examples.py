"""The shipped examples do what their READMEs say, command by command, to the letter."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from interop import redisson
from services.catalog import FOLDER
from support.apps.warm import WarmProgram
from support.brokers.places import EMBEDDED, KAFKA_POSTGRESQL, POSTGRESQL, ROCKETMQ, Place, make_place
from support.patience import PATIENCE

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

EXAMPLES = Path(__file__).parents[2] / "examples"
NAMES = sorted(
    folder.name
    for folder in EXAMPLES.iterdir()
    if (folder / "app.yaml").exists() and not (folder / "compose.yaml").exists()
)
"""Without the one whose commands need Docker; its files are checked by `make deploy-check`."""
ON_REDIS = [name for name in NAMES if "\nredis:" in (EXAMPLES / name / "app.yaml").read_text()]
ON_SERVERS = [name for name in NAMES if "The same on RabbitMQ" in (EXAMPLES / name / "README.md").read_text()]
"""Those whose README says so; the others show a strategy that the suites run on every database."""
ON_ROCKETMQ = ["paid-points", "rides"]
"""What shows transactional messages, and what RocketMQ is often used for."""
_SHELL = re.compile(r"[|&;<>$`*?]")
"""What only a shell understands."""
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")


@pytest.fixture
def place(request: pytest.FixtureRequest, tmp_path: Path, fresh: str) -> Iterator[Place]:
    """Where a newcomer begins, and where the README says that the same works."""
    yield from make_place(request.param, request, tmp_path, fresh)


def sessions(readme: str) -> list[tuple[str, str]]:
    """Return every command of a README with what it shows as printed."""
    found: list[tuple[str, list[str]]] = []
    blank = 0
    for line in readme.splitlines():
        if line.startswith("    $ "):
            found.append((line.removeprefix("    $ "), []))
        elif line.startswith("    ") and found:
            found[-1][1].extend([""] * blank if found[-1][1] else [])
            found[-1][1].append(line.removeprefix("    "))
        blank = 0 if line else blank + 1
    return [(command, "\n".join(printed)) for command, printed in found]


def as_pattern(printed: str) -> re.Pattern[str]:
    """Return what matches `printed`: `…` stands for anything, times and the width of columns may differ."""
    parts = [re.escape(part) for part in _TIME.sub("…", printed).split("…")]
    return re.compile(r"[\s\S]+?".join(re.sub(r"(\\ ){2,}", r"\\s+", part) for part in parts))


@pytest.mark.parametrize(
    ("name", "place"),
    [
        *((name, EMBEDDED) for name in NAMES if name not in {*ON_REDIS, "paid-points"}),
        *(pytest.param(name, ROCKETMQ, marks=pytest.mark.server) for name in ON_ROCKETMQ),
        *(pytest.param(name, POSTGRESQL, marks=pytest.mark.server) for name in ON_SERVERS),
        pytest.param("clickstream", KAFKA_POSTGRESQL, marks=pytest.mark.server),
    ],
    indirect=["place"],
)
def test_an_example_prints_what_its_readme_shows(name: str, place: Place) -> None:
    """Every command succeeds and prints exactly the lines that stand below it."""
    folder = place.folder / name
    shutil.copytree(EXAMPLES / name, folder)
    on_servers = not place.broker.startswith("embedded")
    topic = next(iter(yaml.safe_load((folder / "app.yaml").read_text())["topics"]))
    if on_servers:  # the same names may be in use there
        app = folder / "app.yaml"
        app.write_text(
            app.read_text().replace(f"app: {name}", f"app: {place.name}").replace(topic, place.name)
        )
        for program in folder.glob("*.py"):
            program.write_text(program.read_text().replace(f'"{topic}"', f'"{place.name}"'))
    commands = sessions((folder / "README.md").read_text())
    if on_servers:
        commands = [
            (
                command.replace(topic, place.name),
                printed.replace(topic, place.name)
                .replace(f"{name} may", f"{place.name} may")
                .replace(f"{name}-", f"{place.name}-"),
            )
            for command, printed in commands
        ]
    follow(commands, folder, place.environment if on_servers else {})


@pytest.mark.parametrize("name", ON_REDIS)
def test_an_example_with_redis_prints_what_its_readme_shows(
    name: str, tmp_path: Path, redis_url: str
) -> None:
    """The same, with a Redis; the other service is Python here."""
    follow_with_redis(name, tmp_path, redis_url, database=7)


def test_the_ride_lock_is_shared_with_java(tmp_path: Path, redis_url: str) -> None:
    """The README says the same of `Dispatch.java` on the real Redisson."""
    redisson.class_path(redisson.VERSIONS[0])
    jars = FOLDER / "jars" / f"redisson-{redisson.VERSIONS[0]}"
    printed = follow_with_redis("ride-lock", tmp_path, redis_url, database=8, REDISSON=str(jars))
    assert "Java holds ride-lock-r-1" in printed


def follow_with_redis(name: str, folder: Path, url: str, *, database: int, **environment: str) -> str:
    """Follow a README in a copy of its example, on a database of Redis that is no one else's."""
    shutil.copytree(EXAMPLES / name, folder / name)
    own = f"{url.rpartition('/')[0]}/{database}"
    commands = sessions((EXAMPLES / name / "README.md").read_text())
    return follow(commands, folder / name, {"REDIS": own, **environment})


def follow(commands: list[tuple[str, str]], folder: Path, environment: dict[str, str]) -> str:
    """Give every command; each succeeds and prints exactly what it should. Returns all that was printed."""
    assert len(commands) > 4
    everything = []
    for command, printed in commands:
        done = _shell(command, folder, environment)
        assert done.returncode == 0, f"{command}: {done.stderr}"
        assert as_pattern(printed).fullmatch(done.stdout.rstrip("\n")), f"{command}:\n{done.stdout}"
        everything.append(done.stdout)
    return "".join(everything)


def test_a_second_sending_changes_nothing(tmp_path: Path) -> None:
    """Points stay as they are when the whole file is published again, as the README promises."""
    folder = tmp_path / "points"
    shutil.copytree(EXAMPLES / "points", folder)
    commands = [command for command, _ in sessions((folder / "README.md").read_text())]
    printed = [_shell(command, folder, {}).stdout for command in commands[1:] + commands[3:]]
    assert printed[-2] == "ann has 60 points\nbob has 30 points\n"
    assert printed[-1].count("nothing was paid") == 2


def _shell(command: str, folder: Path, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    inherited = {
        name: text
        for name, text in os.environ.items()
        if name not in {"BROKER", "DATABASE", "REDIS", "REDISSON"}
    }
    variables = {**inherited, "PATH": path, "COLUMNS": "200", **environment}
    name, *arguments = shlex.split(command)
    if name == "oncemq" and not _SHELL.search(command):
        program = WarmProgram(folder)
        program.environment = variables
        return program.call(*arguments)
    return subprocess.run(
        command,
        shell=True,
        cwd=folder,
        env=variables,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60 * PATIENCE,
        check=False,
    )
