"""`oncemq init`: creates a runnable project for a broker, a database and a strategy."""

import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib.resources import files as resources
from pathlib import Path

import click

from oncemq.errors import OnceMQError


@dataclass(frozen=True, slots=True)
class _Server:
    """A broker or a database that a project can use.

    Args:
        url: in app.yaml.
        note: behind it.
        extra: of the package.
        service: the template of its services in compose.yaml; none where it needs no server.
    """

    url: str
    note: str
    extra: str = ""
    service: str = ""


@dataclass(frozen=True, slots=True)
class _Example:
    """What a strategy's project is about.

    Args:
        topic: of its messages.
        key: of one of them.
        intro: the first paragraph of the README.
        result: what the handler's program prints at the end.
        rows: how many messages take effect.
    """

    topic: str
    key: str
    intro: str
    result: str
    rows: int


BROKERS = {
    "embedded": _Server("embedded:///broker.db", "later: amqp://localhost:5672/"),
    "rabbitmq": _Server(
        "${BROKER:-amqp://shop:shop@localhost:5672/}", "as in compose.yaml", "rabbitmq", "rabbitmq"
    ),
    "rocketmq": _Server("${BROKER:-rocketmq://localhost:9876}", "as in compose.yaml", "", "rocketmq"),
}
DATABASES = {
    "sqlite": _Server("sqlite:///shop.db", "later: postgresql+psycopg://localhost/shop"),
    "postgresql": _Server(
        "${DATABASE:-postgresql+psycopg://shop:shop@localhost/shop}",
        "as in compose.yaml",
        "postgres",
        "postgresql",
    ),
    "mysql": _Server(
        "${DATABASE:-mysql+pymysql://shop:shop@127.0.0.1/shop}", "as in compose.yaml", "mysql", "mysql"
    ),
}
STRATEGIES = {
    "unique_key": _Example(
        "order.paid",
        "A-1",
        "Orders that were paid give points. Five messages are published, three of them say the same; three take effect.",
        "3 rows, 24 points",
        3,
    ),
    "state_machine": _Example(
        "order.changed",
        "A-1",
        "Orders go through their states. Five messages are published, one too early and one twice; four take effect.",
        "4 rows, in order",
        4,
    ),
    "sequence": _Example(
        "account.entry",
        "ada",
        "Entries are booked in the order of their numbers. Five messages are published, one too early and one twice; four "
        "take effect.",
        "4 rows, in order",
        4,
    ),
}
_OF_STRATEGY = ("app.yaml", "handlers.py", "test_handlers.py", "messages.jsonl")
_ROCKETMQ_CONFIGURATION = """
configs:
  broker:
    content: |
      brokerIP1 = 127.0.0.1
      autoCreateTopicEnable = true
"""


@click.command(
    epilog="""\b
Examples:
  oncemq init              # into the current folder
  oncemq init shop         # into the folder shop, made if it is missing
  oncemq init shop --broker rabbitmq --database postgresql --strategy state_machine
"""
)
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path), default=Path())
@click.option("--broker", type=click.Choice([*BROKERS]), help="Default: embedded, which needs no server.")
@click.option("--database", type=click.Choice([*DATABASES]), help="Default: sqlite.")
@click.option("--strategy", type=click.Choice([*STRATEGIES]), help="Default: unique_key.")
def init(folder: Path, broker: str | None, database: str | None, strategy: str | None) -> None:
    """Write a runnable project into FOLDER: app.yaml, a handler with tests, sample messages, pyproject.toml and a README.

    Without options it needs no server, and on a terminal it asks. For servers it writes a compose.yaml that brings them. Nothing
    that is there is overwritten.
    """
    asking = broker is database is strategy is None and sys.stdin.isatty()
    chosen = (
        _choose(broker, "Broker", [*BROKERS], asking=asking),
        _choose(database, "Database", [*DATABASES], asking=asking),
        _choose(strategy, "Strategy", [*STRATEGIES], asking=asking),
    )
    written = dict(_project(*chosen))
    taken = [name for name in written if (folder / name).exists()]
    if taken:
        raise OnceMQError(
            f"{', '.join(str(folder / name) for name in taken)} is there already, and nothing was written: "
            "name another folder, like `oncemq init shop`"
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in written.items():
            (folder / name).write_text(text, encoding="utf-8")
            click.echo(f"wrote {folder / name}")
    except OSError as error:
        raise OnceMQError(
            f"cannot write into {folder}: {error.strerror or error} – name a folder that you may write to, like "
            "`oncemq init shop`"
        ) from error
    click.echo("\nNext, run:")
    for command in _next(folder, *chosen):
        click.echo(f"  {command}")


def _choose(given: str | None, question: str, choices: list[str], *, asking: bool) -> str:
    if given is not None:
        return given
    if not asking:
        return choices[0]
    answer: str = click.prompt(question, type=click.Choice(choices), default=choices[0])
    return answer


def _project(broker: str, database: str, strategy: str) -> Iterator[tuple[str, str]]:
    """Yield each file's name and text."""
    servers = (BROKERS[broker], DATABASES[database])
    example = STRATEGIES[strategy]
    extras = _extras(servers)
    services = [server.service for server in servers if server.service]
    install = f"pip install 'oncemq[{extras}]' pytest" if extras else "pip install oncemq pytest"
    values = {
        "BROKER": servers[0].url,
        "BROKER-NOTE": servers[0].note,
        "DATABASE": servers[1].url,
        "DATABASE-NOTE": servers[1].note,
        "PACKAGE": f"oncemq[{extras}]" if extras else "oncemq",
        "FIRST": f"{install} && docker compose up --wait" if services else install,
        "INTRO": example.intro,
        "TOPIC": example.topic,
        "RESULT": example.result,
        "KEY": example.key,
        "ROWS": str(example.rows),
    }
    for name in _OF_STRATEGY:
        text = _filled(f"{strategy}/{name}", values)
        if broker == "rocketmq" and name == "app.yaml":
            named = f"topic_name: {example.topic.replace('.', '-')} # at the broker, where a topic has no dot"
            text = text.replace(f"  {example.topic}:\n", f"  {example.topic}:\n    {named}\n")
        yield name, text
    for name in ("pyproject.toml", "README.md"):
        yield name, _filled(name, values)
    if services:
        parts = "\n".join(_filled(f"{service}.yaml", {}) for service in services)
        configuration = _ROCKETMQ_CONFIGURATION if broker == "rocketmq" else ""
        yield (
            "compose.yaml",
            f"# The servers of app.yaml: docker compose up --wait\nservices:\n{parts}{configuration}",
        )


def _filled(name: str, values: dict[str, str]) -> str:
    text = (resources("oncemq.cli") / "templates" / f"{name}.txt").read_text(encoding="utf-8")
    for word, value in values.items():
        text = text.replace(f"@{word}@", value)
    return text


def _next(folder: Path, broker: str, database: str, strategy: str) -> Iterator[str]:
    servers = (BROKERS[broker], DATABASES[database])
    if folder.resolve() != Path.cwd():
        yield f"cd {folder}"
    if extras := _extras(servers):
        yield f"pip install 'oncemq[{extras}]'"
    if any(server.service for server in servers):
        yield "docker compose up --wait"
    yield "oncemq check"
    yield "oncemq tables create"
    yield "python handlers.py"
    yield f"oncemq publish {STRATEGIES[strategy].topic} messages.jsonl"
    yield "oncemq run --until-idle 2s"
    yield "python handlers.py"


def _extras(servers: Iterable[_Server]) -> str:
    return ",".join(server.extra for server in servers if server.extra)
