"""What `requests list` shows and `requests clear` forgets: only requests of which no one knows, and whom no one serves."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import select

from oncemq.common.clock import SystemClock
from oncemq.errors import OutcomeUnknown
from oncemq.idempotent_requests import RequestLedger, idempotent
from oncemq.idempotent_requests.http import identity_of
from oncemq.ledger.records import requests
from oncemq.ledger.records.requests import State
from support.apps.command_line import CommandLine

AT = datetime(2026, 3, 1, 12, 30, tzinfo=UTC)
LATER = timedelta(hours=1)


def begin(line: CommandLine, ledger: str, key: str, state: State, until: datetime) -> None:
    """Note a request."""
    with line.plan() as plan, plan.engine.begin() as connection:
        requests.begin(
            connection,
            ledger,
            identity_of(["tenant 7", "POST /orders", key]),
            fingerprint="f",
            state=state,
            owner=b"0" * 16,
            now=AT,
            until=until,
        )


@pytest.fixture
def line(tmp_path) -> Iterator[CommandLine]:
    """Return an app with two unknown requests of one ledger, one of another, and three of which more is known."""
    line = CommandLine(tmp_path)
    line.create_tables()
    begin(line, "web", "k:1", State.EXPOSED, AT)
    begin(line, "web", "k:11", State.EXPOSED, AT + LATER)
    begin(line, "jobs", "k:1", State.EXPOSED, AT + 2 * LATER)
    begin(line, "web", "running", State.RUNNING, AT)
    begin(line, "web", "done", State.DONE, AT)
    begin(line, "web", "served", State.EXPOSED, SystemClock().now() + LATER)
    return line


def shown(line: CommandLine, *arguments: str) -> list[tuple[str, str]]:
    """Return ledgers and keys that `requests list` shows."""
    printed = line.run("requests", "list", *arguments, "--json").stdout
    rows = [json.loads(line) for line in printed.splitlines()]
    return [(row["scope"], row["identity"].rpartition(":")[2]) for row in rows]


def left(line: CommandLine) -> int:
    """Return how many requests are known."""
    with line.plan() as plan, plan.engine.connect() as connection:
        return len(connection.execute(select(requests.TABLE.c.identity)).all())


def test_unknown_requests_are_listed(line):
    """With ledger, identity and since when; what is done, harmless, or being carried out is not there."""
    result = line.run("requests", "list", "jobs")
    assert result.exit_code == 0, result.output
    assert result.stdout == (
        "LEDGER  IDENTITY                     SINCE\n"
        "jobs    tenant 7:POST /orders:k%3A1  2026-03-01T12:30:00Z\n"
    )
    assert shown(line) == [("web", "k%3A1"), ("web", "k%3A11"), ("jobs", "k%3A1")]


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        (["web"], ["k%3A1", "k%3A11"]),
        (["--key", "k:1"], ["k%3A1", "k%3A1"]),
        (["--id", "tenant 7:POST /orders:k%3A11"], ["k%3A11"]),
        (["jobs", "--key", "k:11"], []),
        (["--limit", "1"], ["k%3A1"]),
    ],
)
def test_a_list_can_be_restricted(line, arguments, found):
    """By ledger, key, identity, and number."""
    assert [key for _, key in shown(line, *arguments)] == found


def test_one_request_is_cleared(line):
    """With a warning on stderr; the others stay, unknown or not."""
    result = line.run("requests", "clear", "web", "--key", "k:1", "--yes")
    assert (result.exit_code, result.stdout) == (0, "cleared 1 request\n")
    assert "if it did, it takes effect twice" in result.stderr
    assert (shown(line), left(line)) == ([("web", "k%3A11"), ("jobs", "k%3A1")], 5)


def test_keys_that_differ_in_case_are_two(line):
    """Anyone who looked at one has not looked at the other."""
    begin(line, "web", "K:1", State.EXPOSED, AT)
    assert line.run("requests", "clear", "web", "--key", "k:1", "--yes").stdout == "cleared 1 request\n"
    assert shown(line, "web", "--key", "K:1") == [("web", "K%3A1")]


def test_all_that_is_unknown_is_cleared(line):
    """What is done keeps its answer, and what is being carried out its lease."""
    result = line.run("requests", "clear", "web", "--all", "--yes", "--json")
    assert json.loads(result.stdout) == {"cleared": 2, "being_carried_out": 1}
    assert (shown(line), left(line)) == ([("jobs", "k%3A1")], 4)


def test_what_stayed_is_told(line):
    """A key whose lease is not over is neither unknown nor free."""
    result = line.run("requests", "clear", "--key", "served", "--yes")
    assert result.stdout == "cleared 0 requests\n1 request stayed: their leases are not over\n"


def test_all_is_all_of_a_ledger(line):
    """Other apps' ledgers may lie in the same database."""
    result = line.run("requests", "clear", "--all", "--yes")
    assert (result.exit_code, left(line)) == (2, 6)
    assert "name the LEDGER" in result.stderr


@pytest.mark.parametrize("arguments", [[], ["web"], ["--all", "--key", "k:1"]])
def test_clearing_needs_a_choice(line, arguments):
    """Nothing is forgotten by leaving something out, not even of one ledger."""
    result = line.run("requests", "clear", *arguments, "--yes")
    assert result.exit_code == 2
    assert "say which: --id or --key; or --all" in result.stderr
    assert left(line) == 6


def test_clearing_is_asked_about(line):
    """After the warning; anyone who says no forgets nothing."""
    result = line.run("requests", "clear", "web", "--all", stdin="n\n")
    assert result.stderr.index("warning: ") < result.stderr.index("Forget these requests of web?")
    assert (result.exit_code != 0, left(line)) == (True, 6)


def test_what_was_cleared_is_carried_out_again(line):
    """From a call that failed with its effect in doubt, to a person who looked, to the next copy."""
    with line.plan() as plan:
        ledger = RequestLedger(plan.engine.url.render_as_string(hide_password=False), "mails")
    failures = [ZeroDivisionError(), None]

    @idempotent(ledger, key=lambda job: job, effects="external")
    def mail(job: str) -> str:
        failure = failures.pop(0)
        if failure is not None:
            raise failure
        return "sent"

    with pytest.raises(ZeroDivisionError):
        mail("m-1")
    with pytest.raises(OutcomeUnknown):
        mail("m-1")
    assert [ledger for ledger, _ in shown(line, "--key", "m-1")] == ["mails"]
    assert line.run("requests", "clear", "mails", "--key", "m-1", "--yes").exit_code == 0
    assert mail("m-1") == "sent"
    ledger.close()


def test_an_app_without_database_knows_no_requests(tmp_path):
    """It says so in words."""
    line = CommandLine(tmp_path)
    line.app.write_text(
        "app: loyalty\nbrokers: {shop: {url: 'embedded://'}}\ntopics: {t: {key: body.id, strategies: [none]}}\n"
        "consumers: {c: {topic: t, handler: 'plain:handle'}}\n"
    )
    (tmp_path / "plain.py").write_text("def handle(body: dict) -> None: ...\n")
    result = line.run("requests", "list")
    assert result.exit_code == 3
    assert "the app has no database, so it knows of no requests" in result.stderr
