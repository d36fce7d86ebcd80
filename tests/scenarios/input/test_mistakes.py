"""What people get wrong in their first hour: one clear message that says what to do, and no traceback."""

import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pika
import pytest
from sqlalchemy import make_url

from support.apps.program import Program, eventually
from support.apps.warm import WarmProgram

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

SECRET = "hush-hush-4711"
APP = """app: shop
brokers:
  main: {url: "embedded:///broker.db"}
database: {url: "sqlite:///shop.db"}
topics:
  orders: {key: body.id, strategies: [unique_key]}
consumers:
  award: {topic: orders, handler: "handlers:award"}
"""
HANDLERS = '''from sqlalchemy.orm import Session


def award(order: dict, session: Session) -> None:
    """Do nothing."""


def mail(order: dict, sesion: Session, smtp_host) -> None:
    """Ask for what no strategy provides."""
'''


@dataclass(frozen=True, slots=True)
class Mistake:
    """One mistake and what the program shall say.

    Args:
        wrong: (what stands in the app, what stands there instead) pairs.
        code: the documented exit code.
        said: parts of the message.
        command: what is run.
    """

    wrong: tuple[tuple[str, str], ...]
    code: int
    said: tuple[str, ...]
    command: tuple[str, ...] = ("run", "--until-idle", "1s")


def app_in(folder: Path, *wrong: tuple[str, str]) -> WarmProgram:
    """Write the app with these words replaced."""
    app = APP
    for right, instead in wrong:
        assert right in app, right
        app = app.replace(right, instead)
    (folder / "app.yaml").write_text(app)
    (folder / "handlers.py").write_text(HANDLERS)
    return WarmProgram(folder)


def expect(program: Program, mistake: Mistake) -> None:
    """Run the command and check its message, and what holds for every message."""
    done = program.call(*mistake.command, timeout=90)
    said = " ".join((done.stderr + done.stdout).split())
    assert done.returncode == mistake.code, said
    assert "Traceback" not in said
    assert SECRET not in said
    for part in mistake.said:
        assert part in said


BROKER, DATABASE = 'url: "embedded:///broker.db"', 'url: "sqlite:///shop.db"'

ON_FILES = {
    "wrong scheme": Mistake(
        ((BROKER, 'url: "ampq://localhost/"'),),
        3,
        ("app.yaml:3:15: unknown broker scheme 'ampq'; did you mean 'amqp'?",),
    ),
    "wrong database": Mistake(
        ((DATABASE, 'url: "postgrez://localhost/x"'),),
        3,
        ("'postgrez' is not a supported database", "use postgresql://"),
    ),
    "broker refuses the connection": Mistake(
        ((BROKER, f'url: "amqp://u:{SECRET}@127.0.0.1:1/"'),),
        4,
        (
            "cannot reach RabbitMQ at 127.0.0.1:1: connection refused; is it running, and is the address right?",
        ),
        ("publish", "orders", "orders.jsonl"),
    ),
    "database refuses the connection": Mistake(
        ((DATABASE, f'url: "postgresql://u:{SECRET}@127.0.0.1:1/x"'),),
        5,
        (
            "the postgresql database 'x' at 127.0.0.1:1 does not answer: is the server running, is the address right?",
        ),
    ),
    "mariadb refuses the connection": Mistake(
        ((DATABASE, f'url: "mysql://u:{SECRET}@127.0.0.1:1/x"'),),
        5,
        (
            "the mysql database 'x' at 127.0.0.1:1 does not answer: is the server running, is the address right?",
        ),
    ),
    "no tables": Mistake((), 5, ("oncemq tables create",)),
    "typo in the yaml": Mistake(
        (("handler:", "handeler:"),), 3, ("app.yaml:8:26:", "handeler", "did you mean 'handler'?")
    ),
    "tab in the yaml": Mistake((("  orders:", "\torders:"),), 3, ("app.yaml:6:1:", "tab")),
    "unknown strategy": Mistake(
        (("[unique_key]", "[unique_keys]"),), 3, ("app.yaml:6:39:", "did you mean 'unique_key'?")
    ),
    "unknown handler": Mistake(
        (("handlers:award", "handlers:awrad"),), 3, ("app.yaml:8:35:", "awrad", "did you mean 'award'?")
    ),
    "unknown module": Mistake((("handlers:award", "handelrs:award"),), 3, ("app.yaml:8:35:", "handelrs")),
    "handler with a wrong parameter": Mistake(
        (("handlers:award", "handlers:mail"),), 3, ("app.yaml:8:35:", "smtp_host")
    ),
    "unknown topic": Mistake(
        (("topic: orders", "topic: order"),),
        3,
        ("app.yaml:8:18: unknown topic 'order'; did you mean 'orders'?",),
    ),
    "no key": Mistake((("key: body.id, ", ""),), 3, ("key",)),
    "missing variable": Mistake(
        ((DATABASE, 'url: "${SHOP_DATABASE}"'),), 3, ("app.yaml:4:17:", "SHOP_DATABASE")
    ),
    "no file of messages": Mistake(
        (), 2, ("missing.jsonl", "No such file"), ("publish", "orders", "missing.jsonl")
    ),
    "no app": Mistake((), 3, ("nowhere.yaml",), ("-f", "nowhere.yaml", "run")),
    "unknown command": Mistake((), 2, ("there is no command 'rnu'; did you mean 'run'?",), ("rnu",)),
}


@pytest.mark.parametrize("name", ON_FILES)
def test_a_mistake_in_the_app_is_explained(tmp_path: Path, name: str) -> None:
    """Every mistake has its place or address, a remedy, and the documented exit code."""
    mistake = ON_FILES[name]
    (tmp_path / "orders.jsonl").write_text('{"id": "1"}\n')
    expect(app_in(tmp_path, *mistake.wrong), mistake)


def test_a_wrong_password_of_the_broker_is_explained(tmp_path: Path, rabbitmq_url: str) -> None:
    """RabbitMQ's refusal names the user and the address, never the password."""
    url = make_url(rabbitmq_url).set(password=SECRET).render_as_string(hide_password=False)
    program = app_in(tmp_path, (BROKER, f'url: "{url}"'))
    program.succeed("tables", "create")
    expect(program, Mistake((), 4, ("refused the login of user", "check username and password")))


@pytest.mark.parametrize(
    ("server", "refusal"),
    [("postgresql_url", "refuses the user"), ("mariadb_url", "refuses the user")],
)
@pytest.mark.server
def test_a_wrong_password_of_the_database_is_explained(
    tmp_path: Path, server: str, refusal: str, request: pytest.FixtureRequest
) -> None:
    """The database's refusal names the user and where to mend it, never the password."""
    url = make_url(request.getfixturevalue(server)).set(password=SECRET)
    program = app_in(tmp_path, (DATABASE, f'url: "{url.render_as_string(hide_password=False)}"'))
    expect(program, Mistake((), 5, (refusal, "check `username` and `password` under `database`")))


@pytest.mark.parametrize("server", ["postgresql_url", "mariadb_url"])
@pytest.mark.server
def test_a_missing_database_is_explained(tmp_path: Path, server: str, request: pytest.FixtureRequest) -> None:
    """The message names the database and says to create it."""
    url = make_url(request.getfixturevalue(server)).set(database="never_created")
    program = app_in(tmp_path, (DATABASE, f'url: "{url.render_as_string(hide_password=False)}"'))
    expect(program, Mistake((), 5, ("'never_created'", "create it, or correct its name")))


def test_a_queue_that_is_declared_differently_is_explained(
    tmp_path: Path, rabbitmq_url: str, fresh: str
) -> None:
    """What exists is not redeclared; the message names the queue and both ways out."""
    queue = f"shop-award.{fresh}"
    program = app_in(
        tmp_path,
        (BROKER, f'url: "{rabbitmq_url}"'),
        ("  orders: {", f"  {fresh}: {{"),
        ("topic: orders", f"topic: {fresh}"),
    )
    program.succeed("tables", "create")
    with pika.BlockingConnection(pika.URLParameters(rabbitmq_url)) as connection:
        channel = connection.channel()
        channel.queue_declare(queue, durable=False, auto_delete=True)
        try:
            expect(program, Mistake((), 4, (queue,)))
        finally:
            channel.queue_delete(queue)


def test_a_queue_that_does_not_exist_is_explained(tmp_path: Path, rabbitmq_url: str, fresh: str) -> None:
    """An existing queue was named, so it is never made."""
    program = app_in(
        tmp_path, (BROKER, f'url: "{rabbitmq_url}"'), ("key: body.id", f"queue: {fresh}, key: body.id")
    )
    program.succeed("tables", "create")
    expect(program, Mistake((), 4, (fresh, "does not exist")))


def test_a_table_of_the_user_that_is_missing_is_explained(tmp_path: Path) -> None:
    """When a second message fails by it, the consumer pauses and says what is missing; all goes on when it is there."""
    program = app_in(tmp_path)
    (tmp_path / "handlers.py").write_text(
        "from sqlalchemy import text\nfrom sqlalchemy.orm import Session\n\n\n"
        "def award(order: dict, session: Session) -> None:\n"
        '    """Write where there is no table."""\n'
        '    session.execute(text("INSERT INTO points VALUES (1)"))\n'
    )
    (tmp_path / "orders.jsonl").write_text('{"id": "o-1"}\n{"id": "o-2"}\n')
    program.succeed("tables", "create")
    program.succeed("publish", "orders", "orders.jsonl")
    with program.started("run") as running:
        said = "consumer paused: a table, column or permission is missing"
        eventually(lambda: said in running.said(), "a word about the table", said=running.said)
        assert "no such table: points" in running.said()
        with closing(sqlite3.connect(tmp_path / "shop.db", timeout=30)) as database:
            database.execute("CREATE TABLE points (points INTEGER)")
        eventually(lambda: "consumer resumed" in running.said(), "the consumer to resume", said=running.said)
        assert running.drain() == 0
    with closing(sqlite3.connect(tmp_path / "shop.db")) as database:
        assert database.execute("SELECT points FROM points").fetchall() in ([(1,)], [(1,), (1,)])
    assert "no dead letters" in program.succeed("dead-letters", "list")


def without(module: str, folder: Path) -> Program:
    """Return a program that finds no package of this name, as if its extra had not been installed."""
    hidden = folder / "hidden"
    hidden.mkdir()
    (hidden / "sitecustomize.py").write_text(f"import sys\nsys.modules[{module!r}] = None\n")
    return Program(folder, {"PYTHONPATH": str(hidden)})


@pytest.mark.parametrize(
    ("module", "wrong", "advice"),
    [
        ("pika", (BROKER, 'url: "amqp://localhost/"'), "pip install 'oncemq[rabbitmq]'"),
        ("psycopg", (DATABASE, 'url: "postgresql://localhost/x"'), "pip install 'oncemq[postgres]'"),
        ("pymysql", (DATABASE, 'url: "mysql://localhost/x"'), "pip install 'oncemq[mysql]'"),
    ],
)
def test_a_missing_extra_is_explained(
    tmp_path: Path, module: str, wrong: tuple[str, str], advice: str
) -> None:
    """The message holds the line that installs it."""
    app_in(tmp_path, wrong)
    expect(without(module, tmp_path), Mistake((), 3, (advice,), ("check",)))


def test_metrics_without_their_extra_are_explained(tmp_path: Path) -> None:
    """The message holds the line that installs it."""
    program = app_in(tmp_path, ("app: shop", 'app: shop\nhttp: {address: "127.0.0.1:0"}'))
    program.succeed("tables", "create")
    expect(without("prometheus_client", tmp_path), Mistake((), 3, ("pip install 'oncemq[metrics]'",)))
