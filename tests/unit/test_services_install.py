"""Where missing servers come from: packages, Docker, or a person who is told what to do."""

import os
import stat
import uuid
from pathlib import Path

import pytest

from services import catalog, install
from services.container import Container
from services.errors import ServiceError
from services.servers import kafka, rocketmq_jars
from services.servers.mariadb import MariaDB
from services.servers.rocketmq import RocketMQ


class NotInstalled(MariaDB):
    """A server whose programs are never found."""

    @classmethod
    def installed(cls) -> bool:
        """Return that they are missing."""
        return False


def put_program(folder: Path, name: str, script: str) -> None:
    """Write an executable shell script."""
    program = folder / name
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder in PATH, empty."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    return folder


@pytest.fixture
def docker_calls(programs: Path, tmp_path: Path) -> Path:
    """A docker that succeeds and notes its arguments, the port it was given first."""
    calls = tmp_path / "calls"
    put_program(programs, "docker", f'echo "$ONCEMQ_PORT $*" >> {calls}')
    return calls


@pytest.mark.usefixtures("programs")
def test_without_packages_and_docker_a_person_is_told_what_to_install() -> None:
    """The one message names the server, its package and the way to do without."""
    with pytest.raises(ServiceError, match=r"(?s)mariadb.*mariadb-server.*make test-embedded"):
        install.ensure_installed([NotInstalled])


@pytest.mark.usefixtures("docker_calls")
def test_docker_stands_in_for_what_cannot_be_installed(tmp_path: Path) -> None:
    """A missing program is no error where Docker answers; its server comes out of a container."""
    install.ensure_installed([NotInstalled])
    assert isinstance(catalog.make(NotInstalled, tmp_path / "mariadb"), Container)


def test_a_container_gets_the_port_of_its_native_twin(docker_calls: Path, tmp_path: Path) -> None:
    """It is started on the chosen port and waited for."""
    container = Container(NotInstalled(tmp_path / "mariadb"))
    container.start()
    last = docker_calls.read_text().splitlines()[-1]
    assert last.startswith(f"{container.port} compose")
    assert last.endswith("up --detach --wait mariadb")


def test_containers_of_two_folders_are_different_projects(docker_calls: Path, tmp_path: Path) -> None:
    """Two checkouts never stop each other's containers."""
    for name in ("one", "two"):
        Container(NotInstalled(tmp_path / name)).kill()
    first, second = (
        line.split("--project-name ")[1].split()[0] for line in docker_calls.read_text().splitlines()
    )
    assert first != second


def test_a_failing_container_says_what_docker_said(programs: Path, tmp_path: Path) -> None:
    """Docker's own words are in the error."""
    put_program(programs, "docker", "echo no space left >&2; exit 1")
    with pytest.raises(ServiceError, match="no space left"):
        Container(NotInstalled(tmp_path / "mariadb")).start()


def test_a_sudo_that_asks_for_a_password_is_not_used(programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No one could answer it."""
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    put_program(programs, "apt-get", "exit 0")
    put_program(programs, "sudo", "exit 1")
    with pytest.raises(ServiceError, match="make services"):
        install.ensure_installed([NotInstalled])


def test_a_host_without_java_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """Docker cannot stand in for RocketMQ, whose broker tells clients its own address: the packages are named."""
    monkeypatch.setattr(rocketmq_jars, "java", lambda: None)
    monkeypatch.setattr(install, "_apt_prefix", lambda: None)
    monkeypatch.setattr(install, "docker_works", lambda: True)
    with pytest.raises(ServiceError, match=r"(?s)Not installed: rocketmq.*default-jre-headless maven"):
        install.ensure_installed([RocketMQ])


def test_jars_of_other_content_are_noticed(tmp_path: Path) -> None:
    """A jar that was served with other bytes, one that is missing and one more are named."""
    assert rocketmq_jars.changed_jars("rocketmq-0.0.0", tmp_path) == []
    (tmp_path / "netty-all-0.jar").write_bytes(b"other")
    changed = rocketmq_jars.changed_jars(f"rocketmq-{rocketmq_jars.VERSION}", tmp_path)
    assert "netty-all-0.jar" in changed
    assert len(changed) > 10


@pytest.mark.parametrize(
    "name",
    [f"rocketmq-{rocketmq_jars.VERSION}", f"rocketmq-{rocketmq_jars.VERSION_4}", f"kafka-{kafka.VERSION}"],
)
def test_the_known_jars_are_those_that_are_used(name: str) -> None:
    """The list of digests fits the jars in place; there are none where a server was never started."""
    place = rocketmq_jars.FOLDER / name
    assert not place.is_dir() or rocketmq_jars.changed_jars(place.name, place) == []


def test_an_id_of_kafka_is_no_option(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its tool would refuse one that begins with a dash."""
    drawn = [uuid.UUID(int=0xF8 << 120), uuid.UUID(int=1 << 120)]
    monkeypatch.setattr(kafka.uuid, "uuid4", lambda: drawn.pop(0))
    assert kafka.short_id() == "AQAAAAAAAAAAAAAAAAAAAA"
