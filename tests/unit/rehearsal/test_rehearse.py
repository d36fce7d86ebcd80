"""`oncemq rehearse`: what another configuration makes of recorded messages, and that nothing outside is touched."""

import gzip
import json
import socket
import sqlite3
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import make_url

from oncemq.errors import ConfigError
from oncemq.message.claims.store import Store
from oncemq.operate.recording import mark_of
from oncemq.rehearsal.recording_file import read_recording
from oncemq.rehearsal.report import changes_of, lines_of
from oncemq.rehearsal.run import Rehearsal, rehearse
from oncemq.rehearsal.scratch_app import new_app
from oncemq.rehearsal.stories import End, stories_of
from support.apps.command_line import run_program

DATABASE = "postgresql+psycopg://nowhere.invalid/shop"
APP = """
app: shop
brokers: {main: {url: "amqp://nowhere.invalid/"}}
database: {url: "%s"}
redis: {url: "redis://nowhere.invalid"}
topics:
  orders: {key: body.id, version: body.v, queue: orders}
consumers:
  pay:
    topic: orders
    handler: "no_such_module:pay"
    strategies: %s
    retry: {attempts: 3, backoff: {first: 1s}}
"""
STATES = "[{state_machine: {to: body.status, states: [created, paid, shipped]}}]"
ROW = "[{optimistic_lock: {entity: {table: orders, key: id, version: v}}}]"
STATUS = ["created", "paid", "shipped"]

Line = Mapping[str, Any]


def arrival(key: str, version: int, outcome: str = "applied", **more: Any) -> Line:
    """Return a line of a recording."""
    body = {"id": key, "v": version, "status": STATUS[(version - 1) % 3]}
    found = {"outcome": outcome, "key": key, "identity": f"{key}:{version}", "version": version}
    found |= {"print": f"{key}-{version}", "tried": outcome == "applied", "body": body}
    return {**found, **more}


def recorded(
    path: Path, lines: Iterable[Line], *, strategies: Any = None, cut: bool = False, **header: Any
) -> Path:
    """Write a recording of consumer `pay`, a message each 10 ms."""
    declared = {"topic": "orders", "key": "body.id", "version": "body.v", "identity": [], "format": "json"}
    declared["strategies"] = strategies or [["unique_key", {}]]
    first: dict[str, Any] = {"oncemq_recording": 1, "app": "shop", "consumer": "pay", "scope": "shop.pay"}
    first |= {"database": mark_of(make_url(DATABASE)), "declared": declared, "bodies": True}
    text = [json.dumps({**first, **header})]
    text += [json.dumps({"at": 1.7e9 + number / 100, **line}) for number, line in enumerate(lines)]
    if not cut:
        text.append(json.dumps({"end": True, "arrivals": len(text) - 1, "lost": 0}))
    file = path / "traffic.rec"
    file.write_text("\n".join(text) + "\n")
    return file


def app(path: Path, strategies: str = "[unique_key]", *, database: str = DATABASE, changed: str = "") -> Path:
    """Write the new configuration."""
    file = path / "new.yaml"
    file.write_text(APP % (database, strategies) + changed)
    return file


def rehearsed(recording: Path, yaml: Path) -> Rehearsal:
    """Rehearse."""
    found = read_recording(recording)
    new = new_app([yaml], None, "orders", "pay")
    return rehearse(found, stories_of(found.arrivals), new, None)


def texts(found: Rehearsal) -> list[str]:
    """Return what would change, in words."""
    return [change.text for change in changes_of(found)]


def test_the_same_configuration_changes_nothing(tmp_path: Path) -> None:
    """Copies are duplicates again, also of what was applied before the recording began; records protect."""
    lines = [arrival("a", 1), arrival("a", 1, "duplicate"), arrival("b", 4, "duplicate"), arrival("a", 2)]
    found = rehearsed(recorded(tmp_path, lines), app(tmp_path))
    assert texts(found) == []
    assert found.protection.problems == []
    assert found.words == [
        "1 messages had been applied before the recording began: their records still count"
    ]
    assert found.cost.statements > 0
    assert found.cost.commits > 0


def test_a_state_that_comes_before_its_turn_is_found(tmp_path: Path) -> None:
    """Messages that were applied in any order would be stale: the report says how many, why, and which."""
    lines = [line for key in "abc" for line in (arrival(key, 1), arrival(key, 3), arrival(key, 2))]
    found = rehearsed(recorded(tmp_path, lines), app(tmp_path, STATES))
    assert texts(found) == [
        "3 messages that were applied would be stale: paid came late: the state is shipped"
    ]
    assert [key for key, _, _ in changes_of(found)[0].examples] == ["a", "b", "c"]


def test_versions_in_the_users_table_are_rehearsed_on_a_table_of_its_own(tmp_path: Path) -> None:
    """The row is at the version before the key's first message; an older version is stale."""
    lines = [arrival("a", 8), arrival("a", 9), arrival("a", 7), arrival("b", 1)]
    found = rehearsed(recorded(tmp_path, lines), app(tmp_path, ROW))
    assert texts(found) == ["1 message that was applied would be stale: version … came late: the row is at …"]
    assert found.words == [
        "your table orders had 1 keys before the recording began, each just before its first message here"
    ]
    assert found.protection.problems == []


def test_a_sequence_that_begins_in_the_middle_of_a_stream_waits(tmp_path: Path) -> None:
    """A new ledger expects number 1: what is applied today would be parked for ever."""
    found = rehearsed(recorded(tmp_path, [arrival("a", 57), arrival("a", 58)]), app(tmp_path, "[sequence]"))
    assert [(each.before, each.after, each.count) for each in changes_of(found)] == [
        (End.APPLIED, End.WAITING, 2)
    ]
    assert found.protection.problems == [
        "sequence looks into oncemq_sequences, where unique_key has written nothing"
    ]
    joined = app(tmp_path, "[sequence: {first: any}]")
    assert texts(rehearsed(recorded(tmp_path, [arrival("a", 57), arrival("a", 58)]), joined)) == []


def test_a_sequence_that_stays_one_goes_on_where_it_was(tmp_path: Path) -> None:
    """What its ledger had reached before the recording counts; a message that waited is one message."""
    lines = [
        arrival("a", 58, "parked", tried=False),
        arrival("a", 57),
        arrival("a", 58, parked=True),
        arrival("a", 58, "duplicate"),
    ]
    found = rehearsed(recorded(tmp_path, lines, strategies=[["sequence", {}]]), app(tmp_path, "[sequence]"))
    assert (texts(found), len(found.stories)) == ([], 3)


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        (
            "    identity: [body.id]\n",
            "a message's identity was [body.id, body.v] and is [body.id], so no record is found",
        ),
        ("    key: body.v\n    identity: [body.v]\n", "is [body.v], so no record is found"),
    ],
)
def test_another_identity_finds_no_record(tmp_path: Path, changed: str, why: str) -> None:
    """Records from before the change do not protect: what is in flight would run again."""
    found = rehearsed(recorded(tmp_path, [arrival("a", 1)]), app(tmp_path, changed=changed))
    (problem,) = found.protection.problems
    assert problem.endswith(why)


def test_another_name_or_database_finds_no_record(tmp_path: Path) -> None:
    """A consumer that was renamed needs `formerly`; another database is empty."""
    renamed = app(tmp_path)
    renamed.write_text(renamed.read_text().replace("  pay:", "  charge:"))
    found = rehearsed(recorded(tmp_path, [arrival("a", 1)]), renamed)
    assert "write formerly: and the name from before" in found.protection.problems[0]
    renamed.write_text(renamed.read_text().replace("  charge:", "  charge:\n    formerly: pay"))
    assert rehearsed(recorded(tmp_path, [arrival("a", 1)]), renamed).protection.problems == []
    other = app(tmp_path, database="postgresql+psycopg://elsewhere.invalid/shop")
    found = rehearsed(recorded(tmp_path, [arrival("a", 1)]), other)
    assert found.protection.problems == ["the app has another database, in which there are no records"]


def test_handlers_do_what_they_did(tmp_path: Path) -> None:
    """A retry that worked, a rejection and a message that never worked end as they did, whatever the clock says."""
    lines = [
        arrival("a", 1, "retry", tried=True),
        arrival("a", 1, "applied", attempt=2),
        arrival("b", 1, "rejected", tried=True, code="rejected"),
        arrival("b", 1, "dead", code="rejected"),
        *(arrival("c", 1, "retry", tried=True, attempt=number) for number in (1, 2, 3)),
        arrival("c", 1, "dead", code="attempts-exhausted"),
    ]
    found = rehearsed(recorded(tmp_path, lines), app(tmp_path))
    assert texts(found) == []
    assert found.verdicts.ends == [End.APPLIED, End.DEAD, End.DEAD]


def test_fewer_attempts_are_found(tmp_path: Path) -> None:
    """A message that needed three tries becomes a dead letter where there are two."""
    tries = [arrival("a", 1, "retry", tried=True, attempt=number) for number in (1, 2)]
    lines = [*tries, arrival("a", 1, attempt=3)]
    yaml = app(tmp_path)
    yaml.write_text(yaml.read_text().replace("attempts: 3", "attempts: 2"))
    (text,) = texts(rehearsed(recorded(tmp_path, lines), yaml))
    assert text.startswith("1 message that was applied would be a dead letter: ")


def test_a_copy_of_a_message_that_is_retried_is_a_message_of_its_own(tmp_path: Path) -> None:
    """Attempts tell a message's next try from a copy of it."""
    lines = [
        arrival("a", 1, "retry", tried=True),
        arrival("a", 1, "applied"),
        arrival("a", 1, "duplicate", attempt=2),
    ]
    found = read_recording(recorded(tmp_path, lines))
    assert [story.end for story in stories_of(found.arrivals)] == [End.DUPLICATE, End.APPLIED]


def test_nothing_outside_of_the_scratch_place_is_touched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No socket is opened, the app's database file keeps its bytes, no module of the user's is imported."""

    def refused(*_: Any) -> None:
        raise AssertionError("a rehearsal connects to nothing")

    for name in ("connect", "connect_ex", "bind", "sendto"):
        monkeypatch.setattr(socket.socket, name, refused)
    monkeypatch.setattr(socket, "getaddrinfo", refused)
    database = tmp_path / "shop.db"
    with sqlite3.connect(database) as connection:
        connection.execute("CREATE TABLE orders (id TEXT PRIMARY KEY, v INTEGER, status TEXT)")
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    (tmp_path / "touching.py").write_text("raise SystemExit('imported')\n")
    guards = "[redis_lock, tiered, {optimistic_lock: {entity: {table: orders, key: id, version: v}}}]"
    yaml = app(tmp_path, guards, database=f"sqlite:///{database}")
    yaml.write_text(yaml.read_text().replace("no_such_module", "touching"))
    file = recorded(tmp_path, [arrival("a", 1), arrival("a", 2), arrival("a", 1, "duplicate")])
    found = rehearsed(file, yaml)
    assert found.verdicts.ends.count(End.APPLIED) == 2
    after = {path: path.read_bytes() for path in tmp_path.iterdir()}
    assert {path: after[path] for path in before} == before
    assert {path.name for path in set(after) - set(before)} == {"touching.py", "new.yaml", "traffic.rec"}
    assert "touching" not in sys.modules


def test_a_store_of_bodies_generations_and_recycling_are_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What production declares beside its strategies is not opened, and is no reason to refuse the rehearsal."""
    opened: list[Store] = []
    monkeypatch.setattr(Store, "_open", opened.append)
    yaml = app(tmp_path)
    claims = "queue: orders, claim_check: {store: 's3://nowhere.invalid/bodies'}"
    yaml.write_text(yaml.read_text().replace("queue: orders", claims))
    with yaml.open("a") as file:
        file.write("ledger: {generations: 1d}\nrecycle: {after_messages: 10}\nstate: /nowhere/at/all\n")
    found = rehearsed(recorded(tmp_path, [arrival("a", 1), arrival("a", 1, "duplicate")]), yaml)
    assert (texts(found), opened) == ([], [])


@pytest.mark.server
@pytest.mark.parametrize("server", ["postgresql", "mariadb"])
@pytest.mark.parametrize("strategies", ["[unique_key]", STATES])
def test_a_server_may_be_given_for_the_scratch_place(
    tmp_path: Path, server: str, strategies: str, request: pytest.FixtureRequest
) -> None:
    """As `--database` says: with the same result as on SQLite."""
    url = request.getfixturevalue(f"{server}_url")
    lines = [line for key in "abc" for line in (arrival(key, 1), arrival(key, 3), arrival(key, 2))]
    found = read_recording(recorded(tmp_path, lines))
    new = new_app([app(tmp_path, strategies)], None, "orders", "pay")
    on_server = rehearse(found, stories_of(found.arrivals), new, url)
    in_memory = rehearse(found, stories_of(found.arrivals), new, None)
    assert texts(on_server) == texts(in_memory)


def test_what_cannot_be_rehearsed_is_said(tmp_path: Path) -> None:
    """Locks, caches and preconditions are named, each with the reason."""
    yaml = app(tmp_path, "[redis_lock, tiered, {precondition: {entity: {table: t, key: k}}}]")
    new = new_app([yaml], None, "orders", "pay")
    assert [text.partition(":")[0] for text in new.left_out] == [
        "redis_lock",
        "tiered",
        "precondition",
        "handlers",
    ]
    with pytest.raises(ConfigError, match="none of its strategies can be rehearsed: redis_lock"):
        new_app([app(tmp_path, "[redis_lock]")], None, "orders", "pay")


@pytest.mark.parametrize(
    "place", ["{table: dedup, columns: {id: body.id}}", "{redis_key: 'dedup:{body.id}', value: CONSUMED}"]
)
def test_records_of_another_deduplicator_are_left_out(tmp_path: Path, place: str) -> None:
    """They are not in a recording: neither the table nor Redis is asked, and the report says so."""
    yaml = app(tmp_path, f"[{{unique_key: {{also_seen_in: {place}}}}}]")
    new = new_app([yaml], None, "orders", "pay")
    assert "unique_key: also_seen_in, whose records are not in a recording" in new.left_out
    file = recorded(tmp_path, [arrival("a", 1), arrival("a", 1, "duplicate")])
    assert texts(rehearsed(file, yaml)) == []


def test_a_recording_without_what_the_new_configuration_reads_is_refused(tmp_path: Path) -> None:
    """The error names the expression, and the option that records it."""
    file = recorded(tmp_path, [{**arrival("a", 1), "body": None}], bodies=False)
    with pytest.raises(ConfigError) as caught:
        rehearsed(file, app(tmp_path, STATES))
    assert str(caught.value.problems[0]) == (
        "state_machine to reads body.status, which the recording does not have – record again with --bodies, "
        "or with --field status"
    )
    assert texts(rehearsed(file, app(tmp_path))) == []
    with_field = recorded(tmp_path, [{**arrival("a", 1), "body": {"status": "created"}}], bodies=False)
    lines = with_field.read_text().replace('"bodies": false', '"bodies": false, "fields": ["status"]')
    with_field.write_text(lines)
    assert texts(rehearsed(with_field, app(tmp_path, STATES))) == []


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", "is not a recording"),
        ("{}\n", "is not a recording"),
        ("\x00\x01", "is not a recording"),
        ('{"oncemq_recording": 9}\n', "has format 9, and this OnceMQ reads 1"),
        ('{"oncemq_recording": 1}\n', ":1: the line does not say what was recorded"),
        ("%s\n{\n", ":2: the line is not JSON"),
        ("%s\n[]\n", ":2: the line is not a JSON object"),
        ('%s\n{"outcome": "applied"}\n', ":2: the line is not an arrival"),
        ('%s\n{"at": "x", "outcome": "applied"}\n', ":2: the line is not an arrival"),
    ],
)
def test_a_damaged_recording_names_its_line(tmp_path: Path, text: str, error: str) -> None:
    """Whatever the file holds, the error says where it is wrong."""
    file = recorded(tmp_path, [])
    header = file.read_text().partition("\n")[0]
    file.write_text(text % header if "%s" in text else text)
    with pytest.raises(ConfigError) as caught:
        read_recording(file)
    assert error in str(caught.value)


def test_a_recording_that_was_cut_off_is_used_as_far_as_it_goes(tmp_path: Path) -> None:
    """A compressed file without its end, or a last line without its end, says that it is not whole."""
    plain = recorded(tmp_path, [arrival("a", 1), arrival("a", 2)], cut=True)
    plain.write_text(plain.read_text() + '{"at": 17')
    found = read_recording(plain)
    assert (len(found.arrivals), found.whole) == (2, False)
    whole = gzip.compress(recorded(tmp_path, [arrival("a", each) for each in range(1, 400)]).read_bytes())
    squeezed = tmp_path / "traffic.rec.gz"
    squeezed.write_bytes(whole[: len(whole) // 2])
    found = read_recording(squeezed)
    assert 0 < len(found.arrivals) < 399
    assert not found.whole
    squeezed.write_bytes(whole)
    assert read_recording(squeezed).whole


def test_the_command_ends_with_1_where_something_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit code 0 means: nothing ends differently, and records protect."""
    monkeypatch.chdir(tmp_path)
    file = recorded(tmp_path, [arrival("a", 1), arrival("a", 3), arrival("a", 2)])
    same = run_program("rehearse", str(file), "-f", str(app(tmp_path)))
    assert same.exit_code == 0, same.output
    assert "3 messages end as they did" in same.stdout
    other = run_program("rehearse", str(file), "-f", str(app(tmp_path, STATES)))
    assert other.exit_code == 1
    assert "1 message that was applied would be stale" in other.stdout
    assert "every message in flight at the change would run again" in other.stdout
    as_json = run_program("rehearse", str(file), "--json", "-f", str(app(tmp_path, STATES)))
    shown = json.loads(as_json.stdout)
    assert (shown["messages"], shown["records_protect"]) == (3, False)
    assert [(each["before"], each["after"], each["count"]) for each in shown["changes"]] == [
        ("applied", "stale", 1)
    ]


def test_an_empty_recording_is_said(tmp_path: Path) -> None:
    """A file without arrivals is rehearsed to nothing, in words."""
    found = rehearsed(recorded(tmp_path, []), app(tmp_path))
    assert next(iter(lines_of(found, [], []))) == "the recording has no messages"
