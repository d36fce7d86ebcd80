"""The command `dashboard`: what it refuses, and that it serves the page."""

import builtins
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

from oncemq.dashboard.access import Users
from support.apps.command_line import CommandLine
from support.apps.program import eventually
from support.apps.warm import WarmProgram


@pytest.fixture
def line(tmp_path: Path) -> CommandLine:
    """Return an app with its ledger."""
    line = CommandLine(tmp_path)
    line.create_tables()
    return line


@pytest.mark.parametrize("where", ["0.0.0.0:8088", ":8088", "10.0.0.1:8088", "[::]:8088"])
def test_another_address_needs_to_know_who_may_see_it(line: CommandLine, where: str) -> None:
    """Before anything is served."""
    result = line.run("dashboard", "--address", where)
    assert result.exit_code == 3
    assert "add --users FILE, or --user-header NAME and --proxy NETWORK" in result.stderr


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (("--address", "here"), "write host:port"),
        (("--user-header", "X-User"), "--user-header and --proxy belong together"),
        (("--proxy", "10.0.0.0/8"), "--user-header and --proxy belong together"),
        (("--users", "users", "--user-header", "X-User", "--proxy", "10.0.0.0/8"), "not both"),
    ],
)
def test_wrong_options_are_said(line: CommandLine, options: tuple[str, ...], text: str) -> None:
    """As of any command."""
    result = line.run("dashboard", *options)
    assert result.exit_code == 2
    assert text in result.stderr


def test_a_missing_users_file_is_said(line: CommandLine) -> None:
    """With the way to make one."""
    result = line.run("dashboard", "--users", str(line.folder / "nowhere"))
    assert result.exit_code == 3
    assert "nowhere cannot be read" in result.stderr


def test_a_new_users_line_is_printed(line: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has no password in clear, and is understood."""
    monkeypatch.setattr("getpass.getpass", lambda _: "wonderland")
    printed = line.run("dashboard", "--new-user", "alice").stdout
    assert printed.startswith("alice:scrypt$")
    assert "wonderland" not in printed
    Users(Path(line.write("users", printed.strip())))


def test_without_its_packages_it_says_what_to_install(
    line: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No traceback."""
    real = builtins.__import__

    def lacking(name: str, *others: Any) -> Any:
        if name == "uvicorn":
            raise ModuleNotFoundError("No module named 'uvicorn'", name="uvicorn")
        return real(name, *others)

    monkeypatch.setattr(builtins, "__import__", lacking)
    result = line.run("dashboard")
    assert result.exit_code == 3
    assert 'pip install "oncemq[dashboard]"' in result.stderr


def test_it_serves_the_page_until_it_is_told_to_end(line: CommandLine) -> None:
    """On the address that it prints."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]

    def answers() -> bool:
        try:
            return httpx.get(f"http://127.0.0.1:{port}/").status_code == 200
        except httpx.TransportError:
            return False

    with WarmProgram(line.folder).started("dashboard", "--address", f"127.0.0.1:{port}") as page:
        eventually(answers, "the page", said=page.said)
        assert page.drain() == 0
        assert f"http://127.0.0.1:{port}/" in page.said()


def test_the_framework_does_not_need_its_packages(tmp_path: Path) -> None:
    """They are an extra."""
    code = (
        "import sys; sys.modules['starlette'] = sys.modules['uvicorn'] = None; import oncemq, oncemq.cli.main"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=False).returncode == 0
