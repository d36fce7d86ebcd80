"""How results look: on a terminal, in a pipe, as JSON."""

import io
import json
import re
from datetime import UTC, datetime

import pytest

from oncemq.cli.output import Output, counted, shown

COLUMNS = {"key": "key", "at": "at"}
ROWS = [
    {"key": "a1", "at": datetime(2026, 1, 2, 3, 4, 5, 678, tzinfo=UTC), "more": 1},
    {"key": "[red]b\x1b[2J\n2", "at": None},
]


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self):
        """Say so."""
        return True


def test_plain_columns_in_a_pipe():
    """Headings in capitals, columns aligned, nothing that a terminal would obey."""
    stream = io.StringIO()
    assert Output(stream=stream).rows(COLUMNS, ROWS, none="none") == 2
    assert stream.getvalue().splitlines() == [
        "KEY               AT",
        "a1                2026-01-02T03:04:05Z",
        "[red]b\\x1b[2J\\n2  -",
    ]


def test_a_table_on_a_terminal(monkeypatch):
    """A terminal gets a table, in which brackets are brackets and codes are escaped."""
    monkeypatch.setenv("COLUMNS", "80")
    stream = Terminal()
    Output(stream=stream).rows(COLUMNS, ROWS, none="none")
    plain = re.sub(r"\x1b\[[\d;]*m", "", stream.getvalue())
    assert "[red]b\\x1b[2J\\n2" in plain
    assert "\x1b[2J" not in stream.getvalue()
    assert len(plain.splitlines()) == 3


def test_json_lines():
    """Every field of a row is there, times in full, one object per line."""
    stream = io.StringIO()
    Output(as_json=True, stream=stream).rows(COLUMNS, ROWS, none="none")
    first, second = map(json.loads, stream.getvalue().splitlines())
    assert first == {"key": "a1", "at": "2026-01-02T03:04:05.000678+00:00", "more": 1}
    assert second == {"key": "[red]b\x1b[2J\n2", "at": None}


def test_no_rows_are_said_to_people_only():
    """People read a sentence, scripts nothing."""
    for as_json, text in ((False, "none\n"), (True, "")):
        stream = io.StringIO()
        assert Output(as_json=as_json, stream=stream).rows(COLUMNS, [], none="none") == 0
        assert stream.getvalue() == text


def test_lines_are_for_people_and_records_for_scripts():
    """Neither gets the other's."""
    people, script = io.StringIO(), io.StringIO()
    for output in (Output(stream=people), Output(as_json=True, stream=script)):
        output.line("hello\x1b[2J")
        output.record({"a": 1})
    assert (people.getvalue(), script.getvalue()) == ("hello\\x1b[2J\n", '{"a": 1}\n')


@pytest.mark.parametrize(("count", "text"), [(0, "0 messages"), (1, "1 message"), (2000, "2,000 messages")])
def test_counts_are_read_out(count, text):
    """One is singular, thousands are grouped."""
    assert counted(count, "message") == text


@pytest.mark.parametrize(("value", "text"), [(None, "-"), ("", "-"), (0, "0"), ("a\nb", "a\\nb")])
def test_values_are_on_one_line(value, text):
    """Nothing is a dash, zero is not nothing."""
    assert shown(value) == text


def test_what_is_copied_is_never_wrapped(monkeypatch):
    """An id is on one line on a narrow terminal, too; long texts fold instead."""
    monkeypatch.setenv("COLUMNS", "40")
    stream, number = Terminal(), "ledger-" + "7" * 50
    columns = {"id": "id", "error": "error"}
    Output(stream=stream).rows(columns, [{"id": number, "error": "no " * 40}], none="none")
    assert number in stream.getvalue()
