"""A password that real servers refuse, or that never reaches them, is shown by no command, log line or error."""

import faulthandler
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest
from click.testing import CliRunner
from sqlalchemy import create_engine, make_url, text

from oncemq.config import load
from oncemq.engine.application import Application
from oncemq.errors import OnceMQError
from oncemq_adapters.rabbitmq.connection.address import parse_address
from services.waiting import wait_until
from support.apps.command_line import _program
from support.hostile.canary import ENCODED, HARD, PASSWORD, STEM, assert_unseen, logged, told_by

APP = """\
app: shop
brokers: {{main: {{{broker}}}}}
database: {{{database}}}
topics: {{orders: {{key: body.id, strategies: [unique_key]}}}}
consumers: {{count: {{topic: orders, handler: "canary_handlers:handle"}}}}
"""
HANDLERS = "def handle(order: dict) -> None: ...\n"
COMMANDS = (
    ["check"],
    ["tables", "create"],
    ["publish", "orders"],
    ["dead-letters", "list", "--json"],
    ["inspect", "k", "--json"],
    ["purge"],
    ["tables", "sql"],
    ["schema"],
)
FORMS = {"in the URL": (PASSWORD, ""), "encoded": (ENCODED, ""), "beside the URL": ("", HARD)}
WRONGS = ("password", "port", "host", "name")
SERVERS = ("rabbitmq", "postgresql", "mariadb")


@pytest.fixture(params=SERVERS)
def server(request: pytest.FixtureRequest) -> tuple[str, str]:
    """One of the servers and its URL."""
    kind = request.param
    return kind, request.getfixturevalue(f"{kind}_url")


def _declared(folder: Path, server: tuple[str, str], wrong: str, form: str) -> Path:
    kind, url = server
    parts, (inside, beside) = make_url(url), FORMS[form]
    user = parts.username or "guest"
    host = "nowhere.invalid" if wrong == "host" else parts.host
    port = 1 if wrong == "port" else parts.port
    name = "nowhere" if wrong == "name" else parts.database or ""
    bad = f'url: "{parts.drivername}://{user}:{inside}@{host}:{port}/{name}"'
    if beside:
        bad = f'url: "{parts.drivername}://{host}:{port}/{name}", username: {user}, password: "{beside}"'
    broker = bad if kind == "rabbitmq" else f'url: "embedded:///{folder}/broker.db"'
    database = bad if kind != "rabbitmq" else f'url: "sqlite:///{folder}/shop.db"'
    (folder / "canary_handlers.py").write_text(HANDLERS)
    file = folder / "app.yaml"
    file.write_text(APP.format(broker=broker, database=database))
    return file


@pytest.mark.server
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("wrong", WRONGS)
def test_no_command_shows_a_password_that_fails(
    tmp_path: Path, server: tuple[str, str], wrong: str, form: str
) -> None:
    """Every command ends with words of its own, whatever of the address is wrong."""
    file = _declared(tmp_path, server, wrong, form)
    failures = 0
    for command in COMMANDS:
        result = CliRunner().invoke(_program, ["-f", str(file), *command], input='{"id": "k"}\n')
        failures += result.exit_code not in {0, None}
        assert_unseen(result.output, result.stderr)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
    assert failures >= 2


@pytest.mark.server
@pytest.mark.parametrize("style", ["console", "json"])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("wrong", WRONGS)
def test_no_start_that_fails_shows_its_password(
    tmp_path: Path, server: tuple[str, str], wrong: str, form: str, style: Literal["console", "json"]
) -> None:
    """Neither the error of a start that failed nor what every library logs about it holds the password."""
    loaded = load([_declared(tmp_path, server, wrong, form)], environment={})
    with logged(style, loaded.secrets) as stream:
        application = Application(loaded.plan)
        with pytest.raises(OnceMQError) as caught:
            application.run()
    assert_unseen(told_by(caught.value), stream.getvalue(), application, application.state(), loaded.plan)
    assert_unseen(*loaded.plan.adapters.values(), loaded.plan.engine)


@pytest.fixture
def role(postgresql_database: str, fresh: str) -> Iterator[str]:
    """A user of PostgreSQL whose password is the canary."""
    admin = create_engine(postgresql_database, isolation_level="AUTOCOMMIT")
    with admin.connect() as connection:
        connection.execute(text(f"CREATE ROLE {fresh} SUPERUSER LOGIN PASSWORD '{HARD.replace(':', '')}'"))
    yield fresh
    with admin.connect() as connection:
        connection.execute(text(f"DROP OWNED BY {fresh}"))
        connection.execute(text(f"DROP ROLE {fresh}"))
    admin.dispose()


def test_a_running_app_never_shows_its_password(tmp_path: Path, postgresql_database: str, role: str) -> None:
    """Neither the processes' command lines, nor the database's list of connections, nor the output hold it."""
    parts = make_url(postgresql_database)
    database = (
        f'url: "{parts.drivername}://{parts.host}:{parts.port}/{parts.database}", username: {role}, '
        'password: "${SECRET}"'
    )
    (tmp_path / "canary_handlers.py").write_text(HANDLERS)
    file = tmp_path / "app.yaml"
    file.write_text(APP.format(broker=f'url: "embedded:///{tmp_path}/broker.db"', database=database))
    program = [sys.executable, "-m", "oncemq", "-f", str(file)]
    environment = {**os.environ, "SECRET": HARD.replace(":", "")}
    made = subprocess.run(
        [*program, "tables", "create"], env=environment, capture_output=True, text=True, check=True
    )
    assert_unseen(made.stdout, made.stderr)
    running = subprocess.Popen(
        [*program, "run", "--processes", "2"],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        # In one transaction PostgreSQL would show the same list for ever.
        admin = create_engine(postgresql_database, isolation_level="AUTOCOMMIT")
        with admin.connect() as connection:
            activity = text(
                "SELECT usename, application_name, query FROM pg_stat_activity WHERE usename = :role"
            )
            started = text("SELECT count(*) FROM oncemq_workers")
            # Not the connections alone: those of the checks before the start are there, too.
            assert wait_until(lambda: connection.execute(started).scalar_one() >= 2, seconds=60)
            assert len(connection.execute(activity, {"role": role}).all()) >= 2
            assert_unseen(*connection.execute(activity, {"role": role}).all())
        admin.dispose()
        lines = [line for line in _command_lines() if str(file) in line or "oncemq" in line]
        assert lines
        assert_unseen(*lines)
    finally:
        running.send_signal(signal.SIGTERM)
        output, _ = running.communicate(timeout=60)
    assert_unseen(output)
    assert running.returncode == 0, output


def _command_lines() -> list[str]:
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            found.append((folder / "cmdline").read_bytes().decode(errors="replace").replace("\0", " "))
        except OSError:
            continue
    return found


def test_what_rabbitmq_is_told_about_a_connection_holds_no_password() -> None:
    """The name and properties that operators see, and the repr of everything on the way, hold no password."""
    address = parse_address(f"amqp://user:{ENCODED}@host/", {})
    parameters = address.parameters(address.hosts[0], "shop consumer")
    assert STEM in parameters.credentials.password
    assert_unseen(address, parameters, parameters.client_properties)


def test_the_stacks_of_a_hard_limit_hold_no_password(tmp_path: Path) -> None:
    """What is dumped when a handler does not return names places, not values."""

    def handle(secret: str) -> None:
        with (tmp_path / "stacks").open("w") as file:
            faulthandler.dump_traceback(file, all_threads=True)

    handle(HARD)
    assert_unseen((tmp_path / "stacks").read_text())
