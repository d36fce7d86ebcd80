"""What the YAML reader accepts and what it refuses, with the place."""

import time
from contextlib import suppress

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from oncemq.config.source import yaml_text
from oncemq.config.source.tree import plain
from oncemq.config.source.yaml_errors import MAX_DEPTH
from oncemq.config.source.yaml_text import MAX_BYTES, MAX_NODES, parse_yaml
from oncemq.errors import ConfigError


def read(text: str | bytes) -> object:
    """Return what the text means."""
    return plain(parse_yaml(text.encode() if isinstance(text, str) else text, "app.yaml"))


def refusal(text: str | bytes) -> str:
    """Return the one problem with the text."""
    with pytest.raises(ConfigError) as caught:
        read(text)
    (problem,) = caught.value.problems
    return str(problem)


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("no", "no"),
        ("yes", "yes"),
        ("on", "on"),
        ("off", "off"),
        ("22:22", "22:22"),
        ("2024-01-01", "2024-01-01"),
        ("1_000", "1_000"),
        (".inf", ".inf"),
        (".nan", ".nan"),
        ("1e999", "1e999"),
        ("9" * 5000, "9" * 5000),
        ("true", True),
        ("False", False),
        ("12", 12),
        ("-3", -3),
        ("0o17", 15),
        ("0x1F", 31),
        ("010", 10),
        ("1.5", 1.5),
        ("1e3", 1000.0),
        ("~", None),
        ("null", None),
        ("", None),
        ("'12'", "12"),
        ('"no"', "no"),
        ("|\n  12", "12"),
    ],
)
def test_values_mean_what_yaml_1_2_says(written, meant):
    """An unquoted value is null, a bool or a number by YAML 1.2's core rules; everything else is text."""
    assert read(f"a: {written}") == {"a": meant}


def test_keys_are_always_text():
    """A key such as `on` or `1` stays the text that was written."""
    assert read("on: 1\n2: b\nnull: c") == {"on": 1, "2": "b", "null": "c"}


def test_positions_are_line_and_column_from_one():
    """Values know where they begin."""
    tree = parse_yaml(b"a:\n  bc: [x, y]\n", "app.yaml")
    inner = tree.fields["a"].fields["bc"]
    assert (str(tree.fields["a"].keys["bc"]), str(inner.items[1].position)) == (
        "app.yaml:2:3",
        "app.yaml:2:11",
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "app.yaml: the file is empty – `oncemq init` writes one to begin with"),
        ("# nothing\n", "app.yaml: the file is empty – `oncemq init` writes one to begin with"),
        ("- a\n", "app.yaml:1:1: the file is not a mapping – begin with `app: your-name`"),
        ("just text", "app.yaml:1:1: the file is not a mapping – begin with `app: your-name`"),
        (
            "a: 1\n---\nb: 2\n",
            "app.yaml:2:1: a second document begins here – keep one document per file; overlay with -f",
        ),
        (
            "a: 1\nb: 2\na: 3\n",
            "app.yaml:3:1: the key 'a' stands here a second time – keep one of them; the first is in line 1",
        ),
        (
            "a: *x",
            (
                "app.yaml:1:4: a word that begins with `*` is an alias in YAML, and those are refused – put what "
                "consumers share under `defaults:` or their topic; a text that begins with `*` needs quotes"
            ),
        ),
        (
            "a: &x 1",
            (
                "app.yaml:1:4: a word that begins with `&` is an anchor in YAML, and those are refused – put what "
                "consumers share under `defaults:` or their topic; a text that begins with `&` needs quotes"
            ),
        ),
        (
            "a: !!python/object:os.system x",
            (
                "app.yaml:1:4: a word that begins with `!` is a YAML tag, and tags are refused – remove it; "
                "a text that begins with `!` needs quotes"
            ),
        ),
        ("a:\n\tb: 1\n", "app.yaml:2:1: a tab stands where YAML expects spaces – indent with spaces"),
        (
            "a: b: c\n",
            "app.yaml:1:5: a second `: ` in one value – put the value into quotes, or the key onto a line of its own",
        ),
        (
            "a: @home\n",
            "app.yaml:1:4: a value cannot begin with `@` – put the value into quotes; indent with spaces, not tabs",
        ),
        (
            "a: [1, 2\nb: 3\n",
            "app.yaml:2:2: a list in brackets is not closed – write `,` between its values and `]` after the last",
        ),
        (
            "a: 'x\n",
            "app.yaml:2:1: a quoted text is not closed or holds an unknown escape – close the quotes; use '…' where \\ is meant",
        ),
        ("[a]: 1\n", "app.yaml:1:1: a list or mapping cannot be a key – write a plain word before the `:`"),
        (
            "a: 1\nb: x\x00y\n",
            (
                "app.yaml:2:5: the control character U+0000 cannot stand in a configuration – take it out, or write "
                'it as an escape inside double quotes, like "\\x07"'
            ),
        ),
        (b"a: 1\nb: \xff\n", "app.yaml:2:4: not UTF-8 – save the file in UTF-8"),
    ],
)
def test_what_is_no_plain_mapping_is_refused_with_its_place(text, said):
    """Each kind of broken or hostile YAML is one sentence with line, column and advice."""
    assert refusal(text) == said


def test_a_file_above_the_size_limit_is_refused():
    """A mebibyte is more than any app needs."""
    assert (
        refusal(b"#" * (MAX_BYTES + 1))
        == "app.yaml: larger than 1024 KiB – split it and overlay with several -f"
    )


def test_deep_nesting_is_refused_before_it_costs_anything():
    """A hundred thousand brackets end at the depth limit, not in a RecursionError."""
    assert f"nested deeper than {MAX_DEPTH} levels" in refusal("a: " + "[" * 100_000)


def test_too_many_values_are_refused():
    """A flat list of a hundred thousand values ends at the node limit."""
    assert f"more than {MAX_NODES} values" in refusal("a: [" + "1," * 100_000 + "]")


def test_an_alias_bomb_is_refused():
    """A small file that aliases would blow up to millions of values is refused at its first anchor."""
    bomb = "a: &a [1,1,1,1,1,1,1,1,1]\n" + "".join(
        f"{name}: &{name} [{','.join([f'*{before}'] * 9)}]\n"
        for before, name in zip("abcdefg", "bcdefgh", strict=True)
    )
    assert "is an anchor in YAML" in refusal(bomb)


def test_a_byte_order_mark_is_skipped():
    """Editors on Windows write one."""
    assert read(b"\xef\xbb\xbfa: 1") == {"a": 1}


_PIECES = st.sampled_from(
    [
        "a: ",
        "- ",
        "[",
        "]",
        "{",
        "}",
        ":",
        "\n",
        "  ",
        "\t",
        "&a ",
        "*a",
        "!!x ",
        "'",
        '"',
        "|\n",
        ">",
        "%",
        "---\n",
        "...\n",
        "? ",
        "<<: ",
        "#",
        "\\",
        ",",
        "${A}",
        "x",
        "1",
        "\x00",
        "\u2028",
        "\ufeff",
        "é",
        "@",
        "`",
        "\r",
        "\x85",
    ]
)


@settings(max_examples=400, deadline=None)
@given(
    st.one_of(
        st.binary(max_size=300), st.lists(_PIECES, max_size=80).map(lambda parts: "".join(parts).encode())
    )
)
@example(b"? - a\n  : b")
@example(b"{" * 2000)
@example(b"- " * 5000)
@example(b"a: " * 5000)
@example(b"'" + b"x" * 500_000)
def test_any_bytes_end_as_a_tree_or_a_config_error_at_once(data):
    """Whatever stands in a file, the reader answers within 100 ms of work, and never with another exception."""
    # A busy neighbour core can slow one reading down; it does not make all of them slow.
    assert any(work_of_reading(data) < 0.1 for _ in range(3))


def work_of_reading(data: bytes) -> float:
    """Return the seconds of processor time that the reader takes for an answer."""
    began = time.process_time()
    with suppress(ConfigError):
        parse_yaml(data, "app.yaml")
    return time.process_time() - began


@pytest.mark.parametrize(
    "text", ["a: &x 1", "a: *x", "a: !t 1", "a: 1\na: 2", "a: [", "a: b: c", "", "a: 1\n---\nb: 1"]
)
def test_the_slow_parser_refuses_the_same(monkeypatch, text):
    """Where PyYAML was built without its C library, nothing more is accepted."""
    monkeypatch.setattr(yaml_text, "_Loader", yaml.SafeLoader)
    with pytest.raises(ConfigError):
        read(text)


def test_the_slow_parser_reads_the_same(monkeypatch):
    """Where PyYAML was built without its C library, an app means the same."""
    text = "a: {b: [no, 1, '2', ~]}\nc:\n  - d: 1.5\n"
    expected = read(text)
    monkeypatch.setattr(yaml_text, "_Loader", yaml.SafeLoader)
    assert read(text) == expected
