"""What operators do, on a real Kafka: look at lag and dead letters, replay and purge them, and find out what became of a key."""

import json
from pathlib import Path
from typing import Any

import pytest

from support.apps.warm import WarmProgram

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]
APP = """
app: clicks
brokers: {{main: {{url: "{url}"}}}}
database: {{url: "{database}"}}
topics: {{"{topic}": {{key: body.key, strategies: [unique_key]}}}}
consumers: {{count: {{topic: "{topic}", group: "{topic}-group", handler: "handlers:count"}}}}
"""
HANDLERS = """
from pathlib import Path
from oncemq import Reject

def count(click: dict) -> None:
    if click["key"].startswith("bad") and not Path("repaired").exists():
        raise Reject("not a click")
"""
BODIES = ("good-1", "bad-1", "bad-2")


def rows(program: WarmProgram, *arguments: str) -> list[dict[str, Any]]:
    """Return the lines of JSON that a command prints."""
    return [json.loads(line) for line in program.succeed(*arguments, "--json").splitlines()]


def test_an_operator_looks_after_a_consumer_on_kafka(
    kafka_url: str, postgresql_database: str, fresh: str, tmp_path: Path
) -> None:
    """Lag before and after, a dead letter's cause, one replayed and applied, one purged, and the history of each key."""
    (tmp_path / "app.yaml").write_text(APP.format(url=kafka_url, database=postgresql_database, topic=fresh))
    (tmp_path / "handlers.py").write_text(HANDLERS)
    program = WarmProgram(tmp_path)
    program.succeed("tables", "create")
    program.succeed("run", "--until-idle", "1s", timeout=120)
    sent = "".join(json.dumps({"key": key}) + "\n" for key in BODIES)
    assert program.call("publish", fresh, stdin=sent).returncode == 0
    assert waiting(program) == 3
    program.succeed("run", "--until-idle", "3s", timeout=120)
    assert waiting(program) == 0
    letters = {row["key"]: row for row in rows(program, "dead-letters", "list", "count")}
    assert {key: row["reason"] for key, row in letters.items()} == {"bad-1": "rejected", "bad-2": "rejected"}
    assert "not a click" in program.succeed("dead-letters", "show", "count", letters["bad-1"]["id"])
    (tmp_path / "repaired").touch()
    program.succeed("dead-letters", "replay", "count", "--key", "bad-1")
    program.succeed("dead-letters", "purge", "count", "--key", "bad-2", "--yes")
    assert rows(program, "dead-letters", "list", "count") == []
    program.succeed("run", "--until-idle", "3s", timeout=120)
    found = {key: "processed:" in program.call("inspect", key).stdout for key in BODIES}
    assert found == {"good-1": True, "bad-1": True, "bad-2": False}


def waiting(program: WarmProgram) -> int:
    """Return the lag that `oncemq status` tells; it ends with 1 where messages wait."""
    done = program.call("status", "--json")
    (consumer,) = json.loads(done.stdout)["consumers"]
    return int(consumer["waiting"])
