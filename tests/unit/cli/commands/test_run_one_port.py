"""Metrics and health of a supervisor's worker processes on one port."""

import json
import socket
from http.client import HTTPConnection
from pathlib import Path
from urllib.request import urlopen

from support.apps.program import eventually
from support.apps.warm import WarmProgram

_APP = """
app: shop
http: {address: "127.0.0.1:%d"}
brokers:
  local: {url: "embedded:///broker.db"}
topics:
  order.paid: {key: body.order_id, strategies: [none]}
consumers:
  listen: {topic: order.paid, handler: "handlers:listen", effects: external}
"""


def test_two_processes_answer_on_one_port(tmp_path: Path) -> None:
    """Ready when both are; metrics of both; the sockets between them are gone afterwards."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    (tmp_path / "app.yaml").write_text(_APP % port)
    (tmp_path / "handlers.py").write_text("def listen(order: dict) -> None: ...\n")
    (tmp_path / "sockets").mkdir()

    def ready() -> bool:
        connection = HTTPConnection("127.0.0.1", port, timeout=10)
        try:
            connection.request("GET", "/readyz")
            return connection.getresponse().status == 200
        except OSError:
            return False
        finally:
            connection.close()

    program = WarmProgram(tmp_path, {"TMPDIR": str(tmp_path / "sockets")})
    with program.started("run", "--processes", "2") as running:
        eventually(ready, "both processes to be ready", 60, running.said)
        assert json.load(urlopen(f"http://127.0.0.1:{port}/healthz"))["ok"]
        text = urlopen(f"http://127.0.0.1:{port}/metrics").read().decode()
        assert running.drain() == 0, running.said()
    for process in (0, 1):
        assert f'oncemq_consumer_live{{consumer="listen",process="{process}"}} 1.0' in text
    assert [path.name for path in (tmp_path / "sockets").iterdir() if path.name.startswith("oncemq-")] == []
