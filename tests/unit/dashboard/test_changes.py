"""What the page changes, each with its user in the audit trail: nothing is lost or doubled by it."""

import json
import re
from typing import Any

import pytest

from oncemq.operate import letters
from oncemq.operate.auditing import Operator
from support.apps.command_line import CommandLine
from support.apps.program import eventually
from unit.dashboard.conftest import Visitor


def trail(line: CommandLine) -> list[dict[str, Any]]:
    """Return the audit trail, oldest first."""
    found = [json.loads(row) for row in line.run("audit", "--json").stdout.splitlines()]
    return [row for row in found if not row["action"].startswith("tables")][::-1]


def ended(visitor: Visitor, answer: Any) -> str:
    """Wait for the end of a job; returns its page."""
    assert answer.status_code == 303, answer.text
    address = answer.headers["location"]
    eventually(lambda: "It goes on" not in visitor.see(address), "the end of the job")
    return visitor.see(address)


def test_a_consumer_is_paused_and_resumed(visitor: Visitor) -> None:
    """In all processes, with the reason."""
    answer = visitor.send("/pause", {"consumer": "award", "why": "the warehouse is closed"})
    assert (answer.status_code, answer.headers["location"]) == (303, "/")
    text = visitor.see("/")
    assert "the warehouse is closed" in text
    assert 'action="/resume"' in text
    visitor.send("/resume", {"consumer": "award"})
    assert "the warehouse is closed" not in visitor.see("/")
    assert [(row["action"], row["who"], row["why"]) for row in trail(visitor.line)] == [
        ("pause", Operator().who, "the warehouse is closed"),
        ("resume", Operator().who, ""),
    ]


def test_a_replay_is_previewed_and_then_done(visitor: Visitor) -> None:
    """What is selected, and nothing else; the preview changes nothing."""
    visitor.line.publish_dead_letters(b'{"order_id": "1"}', KEY="a1", REASON="rejected")
    visitor.line.publish_dead_letters(b'{"order_id": "2"}', KEY="b2", REASON="rejected")
    chosen: dict[str, Any] = {"act": "replay", "id": ["1"]}
    preview = visitor.send("/dead-letters/act", chosen).text
    assert re.search(r"award: <strong>1</strong>", preview)
    assert len(visitor.keys("/dead-letters")) == 2
    text = ended(visitor, visitor.send("/dead-letters/do", {**chosen, "why": "ticket 7", "total": "1"}))
    assert "1 / 1 done" in " ".join(text.split())
    assert visitor.keys("/dead-letters") == ["b2"]
    assert visitor.line.waiting() == 1
    (row,) = trail(visitor.line)
    assert (row["action"], row["key"], row["state"], row["affected"]) == (
        "dead-letters replay",
        "a1",
        "done",
        1,
    )
    assert (row["why"], row["who"]) == ("ticket 7", Operator().who)


def test_all_of_a_filter_is_deleted(visitor: Visitor) -> None:
    """Of the whole filter, also beyond the page; others stay."""
    visitor.line.publish_dead_letters(*[b"{}"] * 120, KEY="a1", REASON="rejected", ERROR_TEXT="spam")
    visitor.line.publish_dead_letters(b"{}", KEY="b2", REASON="rejected", ERROR_TEXT="ham")
    fields: dict[str, Any] = {"act": "purge", "error": "spam"}
    assert "<strong>120</strong>" in visitor.send("/dead-letters/act", fields).text
    text = ended(visitor, visitor.send("/dead-letters/do", fields))
    assert "120 done" in " ".join(text.split())
    assert visitor.keys("/dead-letters") == ["b2"]
    assert {row["target"] for row in trail(visitor.line)} == {"error spam"}


def test_without_a_filter_all_are_meant(visitor: Visitor) -> None:
    """As the preview says."""
    visitor.line.publish_dead_letters(b"{}", b"{}", KEY="a1", REASON="rejected")
    assert "<strong>2</strong>" in visitor.send("/dead-letters/act", {"act": "replay"}).text


def test_a_replay_that_is_stopped_leaves_the_rest(visitor: Visitor) -> None:
    """After the batch that runs: each letter is either replayed or still there."""
    visitor.line.publish_dead_letters(*[b'{"order_id": "1"}'] * 250, KEY="a1", REASON="rejected")
    answer = visitor.send("/dead-letters/do", {"act": "replay", "rate": "1"})
    address = answer.headers["location"]
    eventually(lambda: "0 done" not in visitor.see(address).replace("100", "x"), "a first batch")
    visitor.send(f"{address}/stop", {})
    ended(visitor, answer)
    left = len(visitor.keys("/dead-letters?page=1")) + 50 * 2  # three pages of fifty
    assert left == 150
    assert visitor.line.waiting() == 100


def test_a_replay_that_fails_says_so(visitor: Visitor, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is not replayed stays."""
    visitor.line.publish_dead_letters(b"{}", KEY="a1", REASON="rejected")

    def refuse(*_: object) -> int:
        raise OSError("the disk is full, password=hunter2hunter2")

    monkeypatch.setattr(letters.Letters, "replay", refuse)
    text = ended(visitor, visitor.send("/dead-letters/do", {"act": "replay", "id": "1"}))
    assert "the disk is full" in text
    assert "hunter2hunter2" not in text
    assert visitor.keys("/dead-letters") == ["a1"]


@pytest.mark.parametrize(
    ("address", "fields"),
    [
        ("/dead-letters/act", {"act": "explode"}),
        ("/dead-letters/do", {}),
        ("/dead-letters/do", {"act": "replay", "rate": "-1"}),
        ("/pause", {"consumer": "unknown"}),
        ("/waiting/claim", {"consumer": "award"}),
        ("/waiting/outbox", {"act": "retry"}),
    ],
)
def test_a_wrong_form_changes_nothing(visitor: Visitor, address: str, fields: dict[str, Any]) -> None:
    """It is said what is wrong."""
    visitor.line.publish_dead_letters(b"{}", KEY="a1", REASON="rejected")
    assert visitor.send(address, fields).status_code == 400
    assert visitor.keys("/dead-letters") == ["a1"]
    assert trail(visitor.line) == []
