"""What the pages show: the same counts as the commands, hostile texts harmless, wrong parameters said."""

import json
from datetime import UTC, datetime
from html import unescape

import pytest

from oncemq.dashboard.rendering import shown
from oncemq.dashboard.texts import _TEXTS, language_of
from oncemq.ledger.messages import dead_letters
from oncemq.message.envelope import Message
from support.apps.command_line import CommandLine
from unit.dashboard.conftest import Visitor

HOSTILE = "<script>alert(1)</script>\u202e\x1b[31m\"'"


def test_the_overview_says_what_top_says(visitor: Visitor) -> None:
    """One source of all counts, while no process of the app runs."""
    visitor.line.publish_dead_letters(b'{"order_id": "x"}', b'{"order_id": "y"}', KEY="a1", REASON="rejected")
    (printed,) = visitor.line.run("top", "--once", "--json").stdout.splitlines()
    seen = json.loads(visitor.see("/api/overview"))
    assert seen["consumers"] == json.loads(printed)["consumers"]
    assert {row["consumer"]: row["dead_letters"] for row in seen["consumers"]} == {"award": 2, "mail": 0}
    assert 'href="/dead-letters?consumer=award">2</a>' in visitor.see("/")
    (listed, _) = json.loads(visitor.line.run("status", "--json").stdout)["consumers"]
    assert listed["dead_letters"] == 2


def test_a_broker_that_is_away_hides_only_what_it_knows(line: CommandLine) -> None:
    """The page says so, and shows the rest."""
    line.app.write_text(line.app.read_text().replace("embedded:///", "embedded:///proc/nowhere/"))
    text = Visitor(line).see("/")
    assert "cannot be read" in text.lower()
    assert "award" in text


def test_a_database_that_is_away_is_said(line: CommandLine) -> None:
    """With status 503, and no traceback."""
    visitor = Visitor(line)
    line.app.write_text(line.app.read_text().replace("sqlite:///", "sqlite:////proc/nowhere/"))
    text = visitor.see("/key?key=a", 503)
    assert "Traceback" not in text


def test_a_hostile_key_and_body_are_text(visitor: Visitor) -> None:
    """On every page where they are shown."""
    body = json.dumps({"order_id": HOSTILE}).encode() + b"<img src=x onerror=alert(1)>"
    visitor.line.publish_dead_letters(body, KEY=HOSTILE, REASON="rejected", ERROR_TEXT=HOSTILE)
    pages = [
        visitor.see("/dead-letters"),
        visitor.see("/dead-letters?group=1"),
        visitor.see("/dead-letters/one?consumer=award&id=1"),
        visitor.client.get("/key", params={"key": HOSTILE}).text,
    ]
    # In its own field a filter is as it was typed.
    filtered = visitor.client.get("/dead-letters", params={"error": HOSTILE, "reason": HOSTILE}).text
    assert "<script>alert" not in filtered
    for text in pages:
        assert "<script>alert" not in text
        assert "<img src=x" not in text
        assert "\u202e" not in text
        assert "\x1b" not in text


def test_a_key_has_its_line_in_time(visitor: Visitor) -> None:
    """With what an operator has done about it."""
    visitor.line.publish_dead_letters(b'{"order_id": "x"}', KEY="a1", REASON="rejected")
    visitor.line.run("dead-letters", "purge", "--key", "a1", "--yes", "--by", "alice", "--why", "ticket 7")
    text = visitor.see("/key?key=a1")
    assert "dead-letters purge · alice" in unescape(text)
    assert "ticket 7" in text
    assert "Nothing is known" in visitor.see("/key?key=unknown")


def test_dead_letters_are_filtered(visitor: Visitor) -> None:
    """By consumer, key, reason, error text and time."""
    visitor.line.publish_dead_letters(b"{}", KEY="a1", REASON="rejected", ERROR_TEXT="Card Declined")
    visitor.line.publish_dead_letters(b"{}", KEY="b2", REASON="undecodable", ERROR_TEXT="no JSON")
    assert visitor.keys("/dead-letters") == ["a1", "b2"]
    assert visitor.keys("/dead-letters?consumer=mail") == []
    assert visitor.keys("/dead-letters?key=b2") == ["b2"]
    assert visitor.keys("/dead-letters?reason=rejected") == ["a1"]
    assert visitor.keys("/dead-letters?error=card+declined") == ["a1"]
    assert visitor.keys("/dead-letters?since=2020-01-01T00:00&until=2999-01-01T00:00") == ["a1", "b2"]
    assert visitor.keys("/dead-letters?since=2999-01-01T00:00") == []
    assert visitor.keys("/dead-letters?until=2020-01-01T00:00%2B08:00") == []


def test_dead_letters_are_grouped_by_error(visitor: Visitor) -> None:
    """The most frequent first."""
    visitor.line.publish_dead_letters(b"{}", KEY="a1", REASON="rejected", ERROR_TEXT="once")
    visitor.line.publish_dead_letters(b"{}", b"{}", KEY="b2", REASON="rejected", ERROR_TEXT="twice")
    text = visitor.see("/dead-letters?group=1")
    assert text.index("twice</td>") < text.index("once</td>")
    assert '">2</a>' in text


@pytest.mark.parametrize(
    ("body", "seen"),
    [
        (b"\xff\x00binary", "ff00 6269"),
        ("gr\u00fc\u00df\n\x07".encode(), "gr\u00fc\u00df\n\\x07"),
        (b"x" * 100_000, "only the beginning"),
    ],
)
def test_a_body_is_shown_as_it_is(visitor: Visitor, body: bytes, seen: str) -> None:
    """Text as text, anything else in hexadecimal digits; all of it can be had as a file."""
    visitor.line.publish_dead_letters(body, KEY="a1", REASON="rejected")
    assert seen in visitor.see("/dead-letters/one?consumer=award&id=1")
    whole = visitor.client.get("/dead-letters/body?consumer=award&id=1")
    assert whole.content == body
    assert whole.headers["content-type"] == "application/octet-stream"
    assert whole.headers["content-disposition"].startswith("attachment")


@pytest.mark.parametrize(
    ("address", "text"),
    [
        ("/dead-letters?of=award&after=1&nth=-1", "nth should be a whole number from 0"),
        ("/dead-letters?of=award&after=1&nth=9999999999999", "nth should be"),
        ("/dead-letters?of=award&after=1&nth=\u0665", "nth should be"),
        ("/dead-letters?of=unknown&after=1", "there is no of"),
        ("/dead-letters?consumer=unknown", "there is no consumer"),
        ("/dead-letters?since=yesterday", "since should be a time"),
        ("/key?key=" + "x" * 2000, "key is longer than 1024"),
    ],
)
def test_a_wrong_parameter_is_said(visitor: Visitor, address: str, text: str) -> None:
    """With status 400."""
    assert text in visitor.see(address, 400)


@pytest.mark.parametrize(
    "address", ["/nothing", "/jobs/99", "/dead-letters/one?consumer=award&id=99", "/static/../application.py"]
)
def test_what_is_not_there_is_said(visitor: Visitor, address: str) -> None:
    """With status 404."""
    visitor.see(address, 404)


def test_secrets_are_not_shown(line: CommandLine) -> None:
    """Neither those of the configuration nor those in errors."""
    app = line.app.read_text().replace(
        "brokers:", "brokers:\n  other: {url: 'amqp://user:C4n4ry7Q9z@host:5672/'}"
    )
    line.app.write_text(
        app.replace("order.paid: {", "order.paid: {broker: shop, ")
        .replace("notes: {", "notes: {broker: shop, ")
        .replace("free: {}", "free: {broker: shop}")
    )
    line.publish_dead_letters(
        b"{}", KEY="a1", REASON="rejected", ERROR_TEXT="at amqp://user:C4n4ry7Q9z@host:5672/"
    )
    visitor = Visitor(line)
    for address in (
        "/",
        "/configuration",
        "/dead-letters",
        "/dead-letters/one?consumer=award&id=1",
        "/key?key=a1",
    ):
        assert "C4n4ry7Q9z" not in visitor.see(address)
    assert "amqp://" in visitor.see("/configuration")


def test_the_configuration_shows_each_chain(visitor: Visitor) -> None:
    """From the topic to the handler."""
    text = visitor.see("/configuration")
    assert '<li class="strategy">unique_key</li>' in text
    assert "handlers:award" in text


@pytest.mark.parametrize(
    ("accepted", "chosen", "language"),
    [
        ("", None, "en"),
        ("zh-CN,zh;q=0.9,en;q=0.8", None, "zh"),
        ("fr, en;q=0.5", None, "en"),
        ("de", None, "en"),
        ("zh", "en", "en"),
        ("zh", "../x", "zh"),
    ],
)
def test_the_language_is_the_browsers_or_the_chosen_one(
    accepted: str, chosen: str | None, language: str
) -> None:
    """English where there is no other."""
    assert language_of(accepted, chosen) == language


def test_each_text_is_there_in_chinese(visitor: Visitor) -> None:
    """And a page in Chinese says so."""
    assert all(
        any(ord(each) > 0x2E80 for each in chinese)
        for name, (_, chinese) in _TEXTS.items()
        if name != "redis"
    )
    text = visitor.see("/?lang=zh")
    assert '<html lang="zh-CN">' in text
    assert "总览" in text


def test_long_texts_are_cut() -> None:
    """A table is not filled by one value."""
    assert shown("x" * 10_000) == "x" * 300 + " …"


def test_more_than_a_thousand_dead_letters_are_counted(visitor: Visitor) -> None:
    """Page, `top` and `status` say the broker's own number with that of the ledger, as the metric does."""
    with visitor.site.plan.engines[0].begin() as connection:
        dead_letters.add(
            connection, visitor.site.plan.consumers[0].scope, Message("t", b""), {}, datetime.now(UTC)
        )
    visitor.line.publish_dead_letters(*[b"{}"] * 1000, KEY="a1", REASON="rejected")
    (seen, _) = json.loads(visitor.see("/api/overview"))["consumers"]
    (printed,) = visitor.line.run("top", "--once", "--json").stdout.splitlines()
    (listed, _) = json.loads(visitor.line.run("status", "--json").stdout)["consumers"]
    assert [row["dead_letters"] for row in (seen, json.loads(printed)["consumers"][0], listed)] == [1001] * 3
