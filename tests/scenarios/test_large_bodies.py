"""Large bodies in a store, on real brokers: retries, dead letters and replays refer to them."""

import json
from pathlib import Path

import pytest

from support.apps.warm import WarmProgram

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]
APP = """
app: shop
brokers: {{main: {{url: "{url}"}}}}
database: {{url: "{database}"}}
topics:
  "{topic}": {{key: body.id, strategies: [unique_key], claim_check: {{store: "file://{folder}/bodies", over: 1KiB}}}}
consumers:
  pay: {{topic: "{topic}", group: "{topic}-group", handler: "handlers:pay", retry: {{attempts: 2, backoff: {{first: 1s}}}}}}
"""
HANDLERS = """
from pathlib import Path

def pay(order: dict) -> None:
    assert len(order["text"]) == 300_000
    if order["id"] == "late" and not Path("repaired").exists():
        raise ValueError("not yet")
"""


@pytest.mark.parametrize("broker", ["rabbitmq", "rocketmq", "kafka"])
def test_a_large_body_is_referred_to_by_every_copy(
    request: pytest.FixtureRequest, broker: str, postgresql_database: str, fresh: str, tmp_path: Path
) -> None:
    """Handled at once, or tried again, dead, replayed and handled; a body that is gone is a dead letter that says so."""
    url = request.getfixturevalue(f"{broker}_url")
    (tmp_path / "app.yaml").write_text(
        APP.format(url=url, database=postgresql_database, topic=fresh, folder=tmp_path)
    )
    (tmp_path / "handlers.py").write_text(HANDLERS)
    program = WarmProgram(tmp_path)
    program.succeed("tables", "create")
    program.succeed("run", "--until-idle", "1s", timeout=120)
    for key in ("good", "late", "gone"):
        line = json.dumps({"id": key, "text": key[0] * 300_000}) + "\n"
        done = program.call("publish", fresh, stdin=line)
        assert done.returncode == 0, done.stderr
    for each in (tmp_path / "bodies").rglob("*"):
        if each.is_file() and b'"gone"' in each.read_bytes():
            each.unlink()
    program.succeed("run", "--until-idle", "4s", timeout=120)
    rows = program.succeed("dead-letters", "list", "pay", "--json").splitlines()
    letters = {row["reason"]: row for row in map(json.loads, rows)}
    assert letters.keys() == {"attempts-exhausted", "claim-gone"}
    late = letters["attempts-exhausted"]
    assert late["key"] == "late"
    assert len(program.succeed("dead-letters", "show", "pay", late["id"])) < 10_000
    (tmp_path / "repaired").touch()
    program.succeed("dead-letters", "replay", "pay", "--id", late["id"])
    program.succeed("run", "--until-idle", "4s", timeout=120)
    rows = program.succeed("dead-letters", "list", "pay", "--json").splitlines()
    assert [json.loads(row)["reason"] for row in rows] == ["claim-gone"]
    applied = {key: "processed:" in program.call("inspect", key).stdout for key in ("good", "late")}
    assert applied == {"good": True, "late": True}
