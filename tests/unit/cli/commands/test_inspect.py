"""What `inspect` knows about a key."""

import json
from datetime import UTC, datetime

import pytest
from sqlalchemy import insert

from oncemq.cli.exit_codes import DATABASE
from oncemq.idempotent_requests.http import identity_of
from oncemq.ledger.messages import delayed, outbox, parking
from oncemq.ledger.messages.parked_row import Parked, values_of
from oncemq.ledger.records import history, processed, requests, states, suspects
from oncemq.ledger.records.history import HistoryRow
from oncemq.message.envelope import Message
from support.apps.command_line import CommandLine

AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


@pytest.fixture
def line(tmp_path):
    """Return an app that knows everything there can be about the key a1, and something about a2."""
    line = CommandLine(tmp_path)
    line.create_tables()
    with line.plan() as plan, plan.engine.begin() as connection:
        for key, scope in (
            ("a1", "loyalty.award"),
            ("a1", "loyalty.mail"),
            ("a1", "other.award"),
            ("a2", "loyalty.award"),
        ):
            row = {"consumer": scope, "identity": f"{key}:7", "key": key, "processed_at": AT}
            connection.execute(insert(processed.TABLE), row)
        row = {"consumer": "loyalty.award", "key": "a1", "state": "paid", "changed_at": AT}
        connection.execute(insert(states.TABLE), row)
        stale = HistoryRow("loyalty.award", "order.paid", "a1", "a1:6", "stale", "paid after shipped", 1, AT)
        history.add(connection, [stale])
        suspects.charge(connection, "loyalty.award", "a1", "a1:8", at=AT)
    line.publish_dead_letters(b'{"order_id": "a1"}', KEY="a1", REASON="rejected", ERROR_TEXT="no such user")
    return line


def test_everything_is_shown_in_sections(line):
    """Applied, states, history, suspects and dead letters of the key, of this app's consumers only."""
    result = line.run("inspect", "a1")
    assert result.exit_code == 0, result.output
    applied = result.stdout.split("dead letters:")[0]
    assert applied == (
        "processed:\n"
        "CONSUMER  IDENTITY  AT                    RESULT\n"
        "award     a1:7      2026-01-02T03:04:05Z  -\n"
        "mail      a1:7      2026-01-02T03:04:05Z  -\n"
        "\n"
        "states:\n"
        "CONSUMER  STATE  SINCE\n"
        "award     paid   2026-01-02T03:04:05Z\n"
        "\n"
        "history:\n"
        "CONSUMER  AT                    OUTCOME  ATTEMPT  IDENTITY  REASON\n"
        "award     2026-01-02T03:04:05Z  stale    1        a1:6      paid after shipped\n"
        "\n"
        "crash suspects:\n"
        "CONSUMER  IDENTITY  CRASHES  BY THE HARD LIMIT  LAST AT\n"
        "award     a1:8      1        0                  2026-01-02T03:04:05Z\n"
        "\n"
    )
    assert "rejected" in result.stdout.split("dead letters:")[1]


def test_what_waits_is_shown_with_its_trace(line):
    """Parked, published, delayed and dead messages have the id of the trace in their headers; others have none."""
    trace = "4bf92f3577b34da6a3ce929d0e0e4736"
    headers = {"traceparent": f"00-{trace}-00f067aa0ba902b7-01"}
    sent = {
        "app": "loyalty",
        "consumer": "loyalty.award",
        "topic": "order.paid",
        "key": "a9",
        "message_id": "m",
        "headers": json.dumps(headers),
        "body": b"{}",
        "created_at": AT,
        "due_at": AT,
    }
    with line.plan() as plan, plan.engine.begin() as connection:
        for number, of_message in enumerate((headers, {}, {"traceparent": "<script>"})):
            message = Message("order.paid", b"{}", headers=of_message)
            row = Parked(0, "a9", f"a9:{number}", number, False, message, "a gap", AT, None)
            connection.execute(insert(parking.TABLE), values_of("loyalty.award", row))
        connection.execute(insert(outbox.TABLE), {**sent, "owner": "me", "attempts": 0})
        connection.execute(insert(delayed.TABLE), sent)
    line.publish_dead_letters(
        b'{"order_id": "a9"}', KEY="a9", REASON="rejected", TRACEPARENT=headers["traceparent"]
    )
    found = json.loads(line.run("inspect", "a9", "--json").stdout)
    assert [row.get("trace_id") for row in found["parked"]] == [trace, None, None]
    for section in ("outbox", "delayed", "dead_letters"):
        assert [row.get("trace_id") for row in found[section]] == [trace], section
        assert {"headers", "envelope"}.isdisjoint(found[section][0])
    shown = line.run("inspect", "a9").stdout
    assert shown.count("TRACE\n") == 4
    assert shown.count(trace) == 4


def test_json_is_one_object(line):
    """A script gets every section as a list."""
    result = line.run("inspect", "a1", "--json")
    found = json.loads(result.stdout)
    assert list(found) == [
        "key",
        "processed",
        "final_failures",
        "claims",
        "states",
        "strategies",
        "parked",
        "history",
        "suspects",
        "outbox",
        "delayed",
        "changes",
        "paused",
        "configurations",
        "requests",
        "dead_letters",
        "problems",
    ]
    assert found["states"] == [
        {"consumer": "award", "key": "a1", "state": "paid", "changed_at": "2026-01-02T03:04:05+00:00"}
    ]
    assert [row["reason"] for row in found["dead_letters"]] == ["rejected"]
    assert found["problems"] == []


def test_one_consumer_can_be_asked_for(line):
    """With --consumer the others' rows are left out."""
    result = line.run("inspect", "a1", "--consumer", "mail")
    assert result.stdout == (
        "processed:\nCONSUMER  IDENTITY  AT                    RESULT\nmail      a1:7      2026-01-02T03:04:05Z  -\n\n"
    )


def test_an_unknown_key_says_so(line):
    """Nothing known is an answer."""
    result = line.run("inspect", "a3")
    assert (result.exit_code, result.stdout) == (0, "nothing is known about this key\n")


def test_without_tables_it_says_what_to_type(tmp_path):
    """A ledger that is not there is an error of its own."""
    result = CommandLine(tmp_path).run("inspect", "a1")
    assert result.exit_code == DATABASE
    assert "oncemq tables create" in result.stderr


def test_a_request_is_found_by_its_key(line):
    """Also one with wildcards and colons in it; requests with a longer key, and other keys, are not it."""
    keys = ["50%:x_1", "50%:xy1", "other-50%:x_1"]
    with line.plan() as plan, plan.engine.begin() as connection:
        for key in keys:
            requests.begin(
                connection,
                "web",
                identity_of(["tenant 7", "POST /orders", key]),
                fingerprint="f",
                state=requests.State.EXPOSED,
                owner=b"0" * 16,
                now=AT,
                until=AT,
            )
    result = line.run("inspect", keys[0])
    assert result.stdout == (
        "requests and calls:\n"
        "LEDGER  IDENTITY                           STATE    ANSWER  LEASE UNTIL           SINCE\n"
        "web     tenant 7:POST /orders:50%25%3Ax_1  exposed  -       2026-01-02T03:04:05Z  2026-01-02T03:04:05Z\n"
        "\n"
    )
    assert "requests" not in json.loads(line.run("inspect", keys[0], "--consumer", "mail", "--json").stdout)
