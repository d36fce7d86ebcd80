"""What `purge` removes, and what it refuses to."""

import json
from datetime import timedelta

import pytest
from sqlalchemy import insert, select

from oncemq.common.clock import SystemClock
from oncemq.ledger.purge import BATCH
from oncemq.ledger.records import history, processed, suspects
from oncemq.ledger.records.history import HistoryRow
from support.apps.command_line import CommandLine


@pytest.fixture
def line(tmp_path):
    """Return an app with records that are 1, 8 and 40 days old for each of two consumers."""
    line = CommandLine(tmp_path)
    line.create_tables()
    now = SystemClock().now()
    with line.plan() as plan, plan.engine.begin() as connection:
        for scope in ("loyalty.award", "loyalty.mail"):
            for days in (1, 8, 40):
                at = now - timedelta(days=days)
                row = {"consumer": scope, "identity": f"{days}d", "key": "k", "processed_at": at}
                connection.execute(insert(processed.TABLE), row)
                history.add(
                    connection, [HistoryRow(scope, "order.paid", "k", f"{days}d", "stale", "", 1, at)]
                )
                suspects.charge(connection, scope, "k", f"{days}d", at=at)
    return line


def left(line, scope="loyalty.award"):
    """Return the identities that are still known as applied."""
    with line.plan() as plan, plan.engine.begin() as connection:
        rows = select(processed.TABLE.c.identity).where(processed.TABLE.c.consumer == scope)
        return sorted(connection.execute(rows).scalars())


def test_records_older_than_keep_go(line):
    """By default each consumer's own `keep` decides, seven days here."""
    result = line.run("purge")
    assert result.exit_code == 0, result.output
    assert result.stdout == (
        "CONSUMER  OLDER THAN  APPLIED  CLAIMS  HISTORY  SUSPECTS  PARKED (KEPT)\n"
        "award     7d          2        0       2        2         0\n"
        "mail      7d          2        0       2        2         0\n"
    )
    assert left(line) == ["1d"]


def test_an_age_can_be_given(line):
    """With --older-than less or more is removed, of one consumer if asked for."""
    result = line.run("purge", "award", "--older-than", "30d", "--json")
    assert json.loads(result.stdout) == {
        "consumer": "award",
        "older_than": "30d",
        "processed": 1,
        "claims": 0,
        "history": 1,
        "suspects": 1,
        "parked": 0,
    }
    assert (left(line), left(line, "loyalty.mail")) == (["1d", "8d"], ["1d", "40d", "8d"])


def test_more_than_a_batch_goes(line):
    """It goes on until nothing old is left."""
    at = SystemClock().now() - timedelta(days=9)
    with line.plan() as plan, plan.engine.begin() as connection:
        rows = [
            {"consumer": "loyalty.award", "identity": str(number), "key": "k", "processed_at": at}
            for number in range(2 * BATCH)
        ]
        connection.execute(insert(processed.TABLE), rows)
    result = line.run("purge", "award", "--json")
    assert json.loads(result.stdout)["processed"] == 2 * BATCH + 2


def test_an_age_within_the_retries_is_refused(line):
    """What may still come again is not forgotten, for any consumer, and nothing is removed."""
    result = line.run("purge", "--older-than", "10s")
    assert result.exit_code == 2
    assert "--older-than 10s is less than the " in result.stderr
    assert "of consumer award can take: a message that comes again would be applied again" in result.stderr
    assert left(line) == ["1d", "40d", "8d"]


@pytest.mark.parametrize("age", ["7", "0d", "soon"])
def test_a_wrong_duration_is_refused(line, age):
    """The command line is wrong, says how a duration is written, and removes nothing."""
    result = line.run("purge", "--older-than", age)
    assert result.exit_code == 2
    assert "duration" in result.stderr
    assert left(line) == ["1d", "40d", "8d"]


def test_an_app_without_database_says_so(tmp_path):
    """There is nothing to purge, in words."""
    line = CommandLine(tmp_path)
    line.app.write_text(
        "app: loyalty\nbrokers: {shop: {url: 'embedded://'}}\ntopics: {t: {key: body.id, strategies: [none]}}\n"
        "consumers: {c: {topic: t, handler: 'plain:handle'}}\n"
    )
    (tmp_path / "plain.py").write_text("def handle(body: dict) -> None: ...\n")
    result = line.run("purge")
    assert result.exit_code == 3
    assert "the app has no database, so there is nothing to purge" in result.stderr
