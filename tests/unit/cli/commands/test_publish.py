"""What `publish` sends, refuses and says."""

import io
import json

import pytest

from oncemq.cli.publish_lines import MAX_LINE, LineReader
from oncemq.message.headers import PRIORITY
from support.apps.command_line import CommandLine


@pytest.fixture
def line(tmp_path):
    """Return an app and its command line."""
    return CommandLine(tmp_path)


def test_every_line_becomes_a_message_with_id_and_key(line):
    """Bodies arrive as written, empty lines aside, each with an id of its own and its business key."""
    file = line.write("orders.jsonl", '{"order_id": "a1", "total": 1.10}', "", '{"order_id": 2}')
    result = line.run("publish", "order.paid", file)
    assert (result.exit_code, result.stdout, result.stderr) == (0, "published 2 messages to order.paid\n", "")
    first, second = line.received(2)
    assert (first.body, second.body) == (b'{"order_id": "a1", "total": 1.10}', b'{"order_id": 2}')
    assert (first.keys, second.keys) == (("a1",), ("2",))
    assert first.message_id
    assert first.message_id != second.message_id


def test_stdin_is_read_where_no_file_is_named(line):
    """Lines come from a pipe too."""
    result = line.run("publish", "order.paid", stdin='{"order_id": "a1"}\n')
    assert (result.exit_code, result.stdout) == (0, "published 1 message to order.paid\n")


def test_json_summary(line):
    """A script reads one object."""
    result = line.run("publish", "order.paid", "--json", stdin='{"order_id": "a1"}\n')
    found = json.loads(result.stdout)
    assert found.pop("seconds") >= 0
    assert found == {"topic": "order.paid", "published": 1, "refused": [], "bad": 0, "unsent": 0}


def test_a_bad_line_stops_all_by_default(line):
    """Nothing is published, each bad line is named by file and number, and the exit code says so."""
    file = line.write("bad.jsonl", '{"order_id": "a1"}', "nope", '{"x": 1}', '{"order_id": NaN}')
    result = line.run("publish", "order.paid", file)
    assert result.exit_code == 1
    assert result.stdout == "nothing published: 3 bad lines; correct them, or add --skip-bad\n"
    assert line.waiting() == 0
    assert [problem.split(": ")[0] for problem in result.stderr.splitlines()] == [
        f"{file}:{n}" for n in (2, 3, 4)
    ]
    assert f"{file}:3: key body.order_id of topic 'order.paid' was not found" in result.stderr


def test_bad_lines_can_be_skipped(line):
    """With --skip-bad the good lines are published; the exit code still says that not all are."""
    file = line.write("bad.jsonl", "nope", '{"order_id": "a1"}')
    result = line.run("publish", "order.paid", file, "--skip-bad")
    assert (result.exit_code, result.stdout) == (1, "published 1 message to order.paid, 1 bad\n")
    assert line.waiting() == 1
    assert [message.body for message in line.received(1)] == [b'{"order_id": "a1"}']


def test_only_the_first_bad_lines_are_listed(line):
    """A thousand bad lines do not flood the terminal."""
    result = line.run("publish", "order.paid", stdin="nope\n" * 1000)
    assert len(result.stderr.splitlines()) == 21
    assert result.stderr.splitlines()[-1] == "… and 980 bad lines more"


def test_an_envelope_carries_headers_key_and_id(line):
    """With --envelope headers, key and id are as given."""
    envelope = {"body": {"order_id": "a1"}, "headers": {"tenant": "t"}, "key": "k", "id": "m-7"}
    result = line.run("publish", "order.paid", "--envelope", stdin=json.dumps(envelope) + "\n")
    assert result.exit_code == 0, result.output
    (message,) = line.received(1)
    assert message.body == b'{"order_id":"a1"}'
    assert (message.message_id, message.keys, message.headers["tenant"]) == ("m-7", ("k",), "t")


@pytest.mark.parametrize(
    ("envelope", "problem"),
    [
        ('{"boddy": {}}', "with --envelope each line must be an object"),
        ("[1]", "with --envelope each line must be an object"),
        ('{"body": {"order_id": 1}, "heders": {}}', "unknown field 'heders'; did you mean 'headers'?"),
        ('{"body": {"order_id": 1}, "headers": {"a": 1}}', "headers must be an object of texts"),
        ('{"body": {"order_id": 1}, "id": ""}', "id must be a text that is not empty"),
        ('{"body": {"order_id": 1}, "key": 5}', "key must be a text that is not empty"),
    ],
)
def test_a_wrong_envelope_is_a_bad_line(line, envelope, problem):
    """The error says what is wrong with it."""
    result = line.run("publish", "order.paid", "--envelope", stdin=envelope + "\n")
    assert result.exit_code == 1
    assert problem in result.stderr


def test_a_text_topic_takes_lines_as_they_are(line):
    """A topic of format text with a key from the broker needs --envelope, and its body is the text."""
    result = line.run("publish", "notes", "--envelope", stdin='{"body": "hello", "key": "n1"}\n')
    assert (result.exit_code, result.stdout) == (0, "published 1 message to notes\n")


def test_a_topic_without_key_is_only_decoded(line):
    """Where no one declared a key none is asked for."""
    result = line.run("publish", "free", stdin='{"any": "thing"}\n')
    assert (result.exit_code, result.stdout) == (0, "published 1 message to free\n")


def test_an_overlong_line_is_bad_and_the_next_is_read(line):
    """A line beyond the limit is named, and what follows it is still a line."""
    body = b'{"order_id": "' + b"a" * MAX_LINE + b'"}\n{"order_id": "a1"}\n'
    result = line.run("publish", "order.paid", "--skip-bad", stdin=body)
    assert result.stderr == f"stdin:1: longer than {MAX_LINE:,} bytes\n"
    assert result.stdout == "published 1 message to order.paid, 1 bad\n"


def test_an_unknown_topic_is_refused_with_a_suggestion(line):
    """A typing mistake publishes nothing."""
    result = line.run("publish", "order.payd", stdin="{}\n")
    assert result.exit_code != 0
    assert "unknown topic 'order.payd'; did you mean 'order.paid'?" in result.stderr


def test_a_missing_file_is_one_clear_line(line):
    """The error names the file."""
    result = line.run("publish", "order.paid", "nowhere.jsonl")
    assert result.exit_code == 2
    assert "nowhere.jsonl cannot be read: No such file or directory" in result.stderr


def test_what_the_broker_refuses_is_listed(line):
    """A body that the broker does not take is named by its line, the others are published."""
    line.app.write_text(line.app.read_text().replace('broker.db"', 'broker.db", max_body: 100'))
    file = line.write("big.jsonl", '{"order_id": "a1"}', '{"order_id": "%s"}' % ("b" * 200))
    result = line.run("publish", "order.paid", file)
    assert (result.exit_code, result.stdout) == (1, "published 1 message to order.paid, 1 refused\n")
    (refusal,) = result.stderr.splitlines()
    assert refusal.startswith(f"{file}:2: refused: BrokerRefused: ")
    assert "max_body" in refusal


def test_a_forged_line_in_a_problem_is_escaped(line):
    """What a file holds cannot write to the terminal as it likes."""
    result = line.run(
        "publish",
        "order.paid",
        "--envelope",
        stdin=json.dumps({"body": {}, "\x1b[2Jx\nall is well": 1}) + "\n",
    )
    assert len(result.stderr.splitlines()) == 1
    assert "\x1b" not in result.stderr


def test_messages_for_later_are_stored_until_they_are_due(line):
    """The broker has nothing yet; `outbox list --delayed` says what is due when, and `drop --delayed` forgets it."""
    line.create_tables()
    result = line.run(
        "publish", "order.paid", "--delay", "30m", stdin='{"order_id": "a1"}\n{"order_id": "b2"}\n'
    )
    assert (result.exit_code, result.stdout[:38]) == (0, "published 2 messages to order.paid for")
    assert line.waiting() == 0
    rows = [json.loads(row) for row in line.run("outbox", "list", "--delayed", "--json").stdout.splitlines()]
    assert [(row["topic"], row["key"], row["consumer"]) for row in rows] == [
        ("order.paid", "a1", "publish"),
        ("order.paid", "b2", "publish"),
    ]
    dropped = line.run("outbox", "drop", "--delayed", "--key", "a1", "--yes")
    assert dropped.stdout == "dropped 1 message\n"
    assert "published for later" in line.run("inspect", "b2").stdout
    left = line.run("inspect", "a1").stdout
    assert "outbox drop --delayed" in left
    assert "published for later" not in left


def test_messages_for_later_may_wait_at_the_broker(line):
    """With `delay_by: broker` it gets them at once, and delivers them later."""
    line.app.write_text(line.app.read_text().replace("{format: text,", "{format: text, delay_by: broker,"))
    result = line.run("publish", "notes", "--envelope", "--delay", "30m", stdin='{"body": "x", "key": "k"}\n')
    assert (result.exit_code, result.stdout[:33]) == (0, "published 1 message to notes for ")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--delay", "soon"], "'soon' is not a duration"),
        (["--delay", "-5m"], "'-5m' is not a duration"),
        (["--at", "tomorrow"], "Invalid isoformat string"),
        (["--at", "2031-01-01T00:00:00"], "has no time zone"),
        (["--delay", "5m", "--at", "2031-01-01T00:00:00Z"], "leave one out"),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(value),
)
def test_a_wrong_moment_publishes_nothing(line, options, says):
    """The exit code is that of a wrong option."""
    result = line.run("publish", "order.paid", *options, stdin='{"order_id": "a1"}\n')
    assert (result.exit_code, line.waiting()) == (2, 0)
    assert says in " ".join(result.stderr.split())


def test_a_priority_that_the_broker_does_not_have_is_refused(line):
    """Before anything is published: the messages would only seem urgent."""
    result = line.run("publish", "order.paid", "--priority", "5", stdin='{"order_id": "a1"}\n')
    assert result.exit_code == 2
    assert "has no priorities: leave it out" in result.stderr
    assert line.waiting() == 0


def test_every_line_has_the_priority_that_is_given():
    """As the header that its adapter reads."""
    reader = LineReader("order.paid", "json", lambda _: None, envelope=False, more={PRIORITY: "5"})
    (found,) = reader.read(io.BytesIO(b'{"order_id": "a1"}\n'))
    assert found.message is not None
    assert found.message.headers[PRIORITY] == "5"
