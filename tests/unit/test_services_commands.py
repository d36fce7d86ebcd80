"""The commands behind `make services` and `make services-stop`."""

import itertools
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from services import catalog, environment, ports
from services.errors import PortTakenError
from services.process import Launch, Process
from services.server import Server
from services.servers.postgresql import PostgreSQL
from services.servers.redis import Redis
from services.settings import Settings
from support.servers import url_from

TESTS = Path(__file__).parents[1]


QUICK = ("rabbitmq", "postgresql", "mariadb")
"""Those that start in seconds; a Java virtual machine more would show nothing new."""


def services(command: str, folder: Path) -> str:
    """Run one command of the services on a folder and return what it printed."""
    done = subprocess.run(
        [sys.executable, "-m", "services", command, "--folder", str(folder), "--only", *QUICK],
        cwd=TESTS,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """The services' folder of a checkout that no one else uses."""
    folder = tmp_path / ".services"
    yield folder
    services("stop", folder)


def pids(folder: Path) -> dict[str, str]:
    """Return what every pid file says."""
    return {file.name: file.read_text() for file in folder.glob("*/*.pid")}


@pytest.mark.server
def test_a_second_start_finds_everything_running(folder: Path) -> None:
    """It starts nothing, changes no URL and takes less than three seconds."""
    services("start", folder)
    before = pids(folder), (folder / "env").read_text()
    began = time.monotonic()
    printed = services("start", folder)
    assert time.monotonic() - began < 3
    assert printed.count("already running") == len(QUICK)
    assert (pids(folder), (folder / "env").read_text()) == before


@pytest.mark.server
def test_stop_leaves_no_process_and_no_port(folder: Path) -> None:
    """Nothing listens on any of the chosen ports, epmd's included, and the URLs are withdrawn."""
    services("start", folder)
    chosen = [port for file in folder.glob("*/settings.json") for port in _ports(file)]
    services("stop", folder)
    assert len(chosen) == sum(len(kind.port_names) for kind in catalog.KINDS if kind.kind in QUICK)
    assert not [port for port in chosen if not ports.is_free(port)]
    assert not pids(folder)
    assert not (folder / "env").exists()


@pytest.mark.server
def test_servers_of_a_killed_test_run_are_stopped_later(folder: Path) -> None:
    """A run that died by SIGKILL leaves a server behind; the next stop finds and removes it."""
    script = (
        "import os, pathlib, signal, sys; from services.catalog import OwnServers; "
        "from services.servers.postgresql import PostgreSQL; server = OwnServers(pathlib.Path(sys.argv[1])).make(PostgreSQL); "
        "server.start(); print(server.port, flush=True); os.kill(os.getpid(), signal.SIGKILL)"
    )
    died = subprocess.run(
        [sys.executable, "-c", script, str(folder)], cwd=TESTS, stdout=subprocess.PIPE, text=True, check=False
    )
    port = int(died.stdout)
    assert ports.accepts(port)
    services("stop", folder)
    assert not ports.accepts(port)
    assert not list((folder / "own").iterdir())


@pytest.mark.server
@pytest.mark.parametrize("kind", [Redis, PostgreSQL])
def test_a_port_taken_meanwhile_costs_only_another_one(kind: type[Server], tmp_path: Path) -> None:
    """Between choosing ports and listening others may be faster; the first start then chooses again."""
    servers = catalog.OwnServers(tmp_path)
    server = servers.make(kind)
    taken = server.port
    with socket.create_server((ports.LOOPBACK, taken)):
        try:
            server.start()
            assert server.port != taken
            assert server.answers()
        finally:
            servers.remove(server)


@pytest.mark.server
def test_a_restart_keeps_its_port_or_fails(tmp_path: Path) -> None:
    """Clients know the port of a server that ran; a later start never chooses another one in silence."""
    servers = catalog.OwnServers(tmp_path)
    server = servers.make(Redis)
    server.start()
    server.stop()
    try:
        with (
            socket.create_server((ports.LOOPBACK, server.port)),
            pytest.raises(PortTakenError, match="already in use"),
        ):
            server.start()
    finally:
        servers.remove(server)


def test_a_chosen_port_leaves_room_below_it() -> None:
    """A RocketMQ broker listens two below its port, so that one is free too and never another server's."""
    chosen = sorted(ports.choose(50))
    assert min(later - earlier for earlier, later in itertools.pairwise(chosen)) >= 3
    assert all(ports.is_free(port - 2) for port in chosen)


def _ports(settings: Path) -> list[int]:
    return list(Settings.of(settings.parent, ()).ports.values())


def test_settings_are_chosen_once(tmp_path: Path) -> None:
    """The second reading returns the ports and the password of the first."""
    assert Settings.of(tmp_path, ["sql"]) == Settings.of(tmp_path, ["sql"])


def test_chosen_ports_are_different() -> None:
    """One server never gets the same port twice."""
    chosen = ports.choose(20)
    assert len(set(chosen)) == 20


def test_a_port_in_use_is_not_free() -> None:
    """A listener on loopback takes its port."""
    with socket.create_server((ports.LOOPBACK, 0)) as listener:
        assert not ports.is_free(listener.getsockname()[1])


def test_a_reused_pid_is_not_taken_for_the_server(tmp_path: Path) -> None:
    """A pid file whose start time is another's names no one."""
    launch = Launch("server", ())
    (tmp_path / "server.pid").write_text(f"{os.getpid()} 1\n")
    assert Process.load(launch, folder=tmp_path) is None


def test_the_environment_comes_before_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A URL in the environment is used although `make services` wrote another."""
    (tmp_path / "env").write_text("ONCEMQ_TEST_RABBITMQ=amqp://file/\n")
    monkeypatch.setenv("ONCEMQ_TEST_RABBITMQ", "amqp://environment/")
    assert url_from("ONCEMQ_TEST_RABBITMQ", tmp_path) == "amqp://environment/"


def test_a_missing_server_fails_and_says_what_to_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without environment and file the test fails with `make services` in its message."""
    monkeypatch.delenv("ONCEMQ_TEST_RABBITMQ", raising=False)
    with pytest.raises(pytest.fail.Exception, match="make services"):
        url_from("ONCEMQ_TEST_RABBITMQ", tmp_path)


def test_stopping_one_server_withdraws_only_its_url(tmp_path: Path) -> None:
    """Tests of the others go on meanwhile."""
    env = tmp_path / "env"
    env.write_text("ONCEMQ_TEST_MARIADB=m\nONCEMQ_TEST_POSTGRESQL=p\n")
    environment.remove(env, catalog.make(PostgreSQL, tmp_path / "postgresql").urls)
    assert env.read_text() == "ONCEMQ_TEST_MARIADB=m\n"


def test_a_shell_reads_the_urls_whole(tmp_path: Path) -> None:
    """An ampersand ends no line of a file that is sourced; MariaDB's URL has one."""
    url = "mysql://user:pass@127.0.0.1/db?charset=utf8mb4&ssl_disabled=true"
    environment.add(tmp_path / "env", {"ONCEMQ_TEST_MARIADB": url})
    script = f'. {tmp_path / "env"}; printf %s "$ONCEMQ_TEST_MARIADB"'
    said = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True, timeout=60)
    assert said.stdout == environment.read(tmp_path / "env")["ONCEMQ_TEST_MARIADB"] == url
