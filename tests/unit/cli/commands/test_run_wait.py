"""`oncemq run --wait` starts before its servers do."""

import socket
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from oncemq.testing.tcp_proxy import LOOPBACK, TcpProxy
from support.brokers.rabbitmq import through

APP = """
app: {name}
brokers: {{shop: {{url: "{url}"}}}}
database: {{url: "sqlite:///{folder}/shop.db"}}
topics: {{order.paid: {{key: body.order, strategies: [unique_key]}}}}
consumers: {{award: {{topic: order.paid, handler: "handlers:award"}}}}
"""
HANDLERS = """
from sqlalchemy.orm import Session

def award(order: dict, session: Session) -> None:
    pass
"""


def free_port() -> int:
    """Return a port on which nothing listens."""
    with socket.create_server((LOOPBACK, 0)) as listener:
        return int(listener.getsockname()[1])


def started(folder: Path, name: str, url: str, *options: str) -> subprocess.Popen[str]:
    """Write an app, and start it."""
    (folder / "app.yaml").write_text(APP.format(name=name, folder=folder, url=url))
    (folder / "handlers.py").write_text(HANDLERS)
    program = [sys.executable, "-m", "oncemq"]
    subprocess.run([*program, "tables", "create"], cwd=folder, check=True, capture_output=True)
    command = [*program, "run", "--until-idle", "100ms", *options]
    return subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True)


@pytest.mark.timeout(60)
def test_a_broker_that_starts_later_is_waited_for(rabbitmq_url: str, fresh: str, tmp_path: Path) -> None:
    """Each cause is said once, and the app runs as soon as the broker answers."""
    port = free_port()
    with started(tmp_path, fresh, through(rabbitmq_url, port), "--wait", "50s") as running:
        assert running.stderr is not None
        assert running.stderr.readline().startswith("waiting: cannot reach RabbitMQ")
        with TcpProxy(LOOPBACK, urlsplit(rabbitmq_url).port or 0, port):
            said = running.stderr.read()
    assert (running.returncode, "waiting:" in said) == (0, False)


def test_waiting_ends(rabbitmq_url: str, fresh: str, tmp_path: Path) -> None:
    """A broker that never answers ends the command with the code that it has without waiting."""
    with started(tmp_path, fresh, through(rabbitmq_url, free_port()), "--wait", "100ms") as running:
        _, said = running.communicate(timeout=60)
    assert running.returncode == 4
    assert "error: cannot reach RabbitMQ" in said
