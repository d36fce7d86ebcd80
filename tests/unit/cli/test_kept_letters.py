"""Dead letters that lie in the ledger, since no broker took them, are looked after by the same commands."""

import json
from datetime import UTC, datetime

import pytest

from oncemq.ledger.messages import dead_letters as ledger
from oncemq.ledger.records import final_failures
from oncemq.message import headers as names
from oncemq.message.envelope import Message
from support.apps.command_line import CommandLine

DIED = datetime(2026, 1, 1, 10, tzinfo=UTC)
MESSAGE = Message("order.paid", b"\xff large", "m-1", {"tenant": "a"}, attempt=6)
CAUSE = {names.REASON: "rejected", names.ATTEMPT: "6", names.KEY: "a9", names.ERROR_TEXT: "no"}


@pytest.fixture
def line(tmp_path):
    """Return an app with one dead letter on the broker and one in the ledger."""
    line = CommandLine(tmp_path)
    line.create_tables()
    line.publish_dead_letters(b'{"order_id": "a1"}', KEY="a1", REASON="rejected", ATTEMPT="1")
    with line.plan() as plan, plan.engine.begin() as connection:
        ledger.add(connection, plan.consumers[0].scope, MESSAGE, CAUSE, DIED)
    return line


def test_both_are_listed(line):
    """With the same columns; where a letter lies shows in its id."""
    assert line.dead_letters() == [("ledger-1", "a9", "rejected", 6), ("1", "a1", "rejected", 1)]


def test_one_of_the_ledger_is_shown_whole(line):
    """Headers and body are the message's own."""
    shown = json.loads(line.run("dead-letters", "show", "award", "ledger-1", "--json").stdout)
    assert (shown["headers"], shown["body_base64"]) == ({"tenant": "a"}, "/yBsYXJnZQ==")


def test_one_of_the_ledger_is_replayed(line):
    """It comes again as it was, for the first time, and lies nowhere any more."""
    result = line.run("dead-letters", "replay", "award", "--id", "ledger-1")
    assert (result.exit_code, result.stdout) == (0, "replayed 1 dead letter of award\n")
    (message,) = line.received(1)
    assert (message.body, message.message_id, message.attempt) == (b"\xff large", "m-1", 1)
    assert message.headers["tenant"] == "a"
    assert [row[0] for row in line.dead_letters()] == ["1"]


def test_all_are_purged(line):
    """Wherever they lie."""
    result = line.run("dead-letters", "purge", "award", "--all", "--yes")
    assert (result.exit_code, result.stdout) == (0, "purged 2 dead letters of award\n")
    assert line.dead_letters() == []


def test_a_replay_of_all_forgets_what_on_dead_did(line):
    """The identity is in the body, which a list does not read: the message runs again, and so may `on_dead`."""
    message, headers = Message("order.paid", b'{"order_id": "a7"}'), {**CAUSE, names.ON_DEAD: "done"}
    with line.plan() as plan:
        award = plan.consumers[0]
        identity = award.reader.read(message)[0].identity
        with plan.engine.begin() as connection:
            ledger.add(connection, award.scope, message, {**headers, names.KEY: "a7"}, DIED)
            final_failures.add(connection, award.scope, identity, "a7", "no", "why", DIED)
        assert line.run("dead-letters", "replay", "award", "--key", "a7").exit_code == 0
        with plan.engine.connect() as connection:
            assert final_failures.load(connection, award.scope, [identity]) == {}
