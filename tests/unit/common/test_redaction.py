"""What must never be shown is masked, and no text can forge a line."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as some

from oncemq.common import redaction
from oncemq.common.redaction import Redactor, escape, is_secret_name

CANARY = "canary-7Q9z"


@pytest.mark.parametrize(
    "text",
    [
        f"amqp://user:{CANARY}@host:5672/",
        f"cannot reach postgresql+psycopg://loyalty:{CANARY}@db/loyalty?sslmode=require",
        f"redis://:{CANARY}@host",
        f"amqp://user:{CANARY}/with@both@host/",
        f"host=db password={CANARY} user=x",
        f"{{'password': '{CANARY} with blanks'}}",
        f'{{"api_key": "{CANARY}"}}',
        f"PASSWORD: {CANARY}, next",
        f"https://host/?token={CANARY}&page=2",
        f"Authorization: Bearer {CANARY}",
        f"client_secret={CANARY}",
        "a" * 50 + f" mysql://u:{CANARY}@h",
        f'Authorization: Digest username="{CANARY}", realm="x", response="{CANARY}"',
        f"{{'Authorization': 'Digest username=\"{CANARY}\", response=\"{CANARY}\"'}}",
        f"Digest username={CANARY}, response={CANARY}",
        f"Proxy-Authorization: NTLM {CANARY}",
        f"X-Api-Token: {CANARY}",
        f"X-Api-Token {CANARY}",
        f"('X-Api-Token', '{CANARY}')",
        f"dsn=user/{CANARY}@host",
        f"dsn='user/{CANARY}@host:1521/db'",
        f'{{"password": "a {CANARY} c"}}',
        f'"{{\\"password\\": \\"a {CANARY} c\\"}}"',
        f"password='a {CANARY} c'",
    ],
)
def test_credentials_are_masked_where_they_usually_stand(text):
    """A password in a URL, an assignment or a header does not survive redaction."""
    assert CANARY not in Redactor()(text)


@pytest.mark.parametrize("text", ["p%40ss+w0rd/x", "p@ss w0rd/x"])
def test_a_known_secret_is_masked_wherever_it_stands(text):
    """A secret that the configuration knows is found as it is and percent-encoded."""
    redact = Redactor(["p@ss w0rd/x"])
    encoded = "p%40ss%20w0rd%2Fx"
    assert redact(f"said p@ss w0rd/x or {encoded}") == "said *** or ***"


def test_a_short_known_secret_does_not_mask_ordinary_words():
    """`guest` as a password leaves a key such as guest-42 readable."""
    assert Redactor(["guest"])("key guest-42") == "key guest-42"


def test_plain_text_is_left_alone():
    """What holds no credential is shown as it is."""
    text = "consumer award-points: FATAL: password authentication failed for user loyalty at http://host:80/a"
    assert Redactor(["something-else"])(text) == text


_LONG_S = "\u017f"
"""A small letter that a pattern without regard to case takes for an s, and lower() leaves as it is."""
_PIECES = some.sampled_from(
    f"authorization dsn= digest x-a- DETAIL: password token api-key ACCESS_KEY cookie Bearer basic ba{_LONG_S}ic toKen = : :// @ /user: abcdefgh12 hunter22".split()
)


@given(
    some.lists(_PIECES | some.text(max_size=4), max_size=12).map(
        lambda parts: " ".join(parts) + "".join(parts)
    )
)
def test_looking_first_hides_as_much_as_every_pattern(text):
    """What is skipped because nothing of it can match is what no pattern would have changed; beyond ASCII, too."""
    expected = text.replace("hunter22", "***")
    for pattern in (*redaction.PATTERNS, *redaction.ROW_VALUES):
        expected = pattern.found.sub(pattern.shown, expected)
    assert Redactor(["hunter22"])(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        f"IntegrityError: null value violates not-null\nDETAIL:  Failing row contains (1, {CANARY}, null).",
        f"violates foreign key\nDETAIL:  Key (card)=(41\n{CANARY}) is not present in table.\nHINT:  none",
        f"(1062, \"Duplicate entry '{CANARY}' for key 'card'\")",
        f"(1366, \"Incorrect integer value: '{CANARY}' for column `s`.`t`.`n` at row 1\")",
        f"(1292, \"Truncated incorrect DOUBLE value: 'a'{CANARY}'\")",
    ],
)
def test_values_of_rows_are_masked_unless_asked_for(text):
    """What a database quotes of a row is no one's business where errors are read."""
    assert CANARY not in Redactor()(text)
    assert CANARY in Redactor(row_values=True)(text)


def test_what_stands_behind_a_detail_is_shown():
    """Only the detail itself is masked: hint, statement and the next error of a chain stay."""
    text = "violated\nDETAIL:  Key (a)=(1) exists.\nHINT:  drop it\n[SQL: INSERT]"
    assert Redactor()(text) == "violated\nDETAIL:  ***\nHINT:  drop it\n[SQL: INSERT]"


def test_a_redactor_does_not_show_its_secrets():
    """Its repr holds none of what it knows."""
    assert repr(Redactor([CANARY])) == "<Redactor>"


@pytest.mark.parametrize(
    "text",
    [
        "://a:" * 4000,
        "password" * 2500,
        "password=" * 2200,
        "a-" * 10000,
        "DETAIL: \n" * 3000,
        "x-" * 9000,
        "Authorization: Digest a=" * 1000,
    ],
)
def test_a_hostile_text_costs_no_more_than_a_plain_one(text):
    """No pattern goes back and forth over a long text."""
    began = time.perf_counter()
    Redactor([CANARY])(text)
    assert time.perf_counter() - began < 0.5


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain ümläut 订单", "plain ümläut 订单"),
        ("a\nb\r", "a\\nb\\r"),
        ("\x1b[31mred", "\\x1b[31mred"),
        ("\u202egnp", "\\u202egnp"),
        ("\u2028\u0085", "\\u2028\\x85"),
        ("\ud800", "\\ud800"),
        ("nul\0", "nul\\x00"),
    ],
)
def test_unprintable_characters_are_escaped(text, shown):
    """Line ends, ANSI and bidi codes and lone surrogates are shown by their escapes."""
    assert escape(text) == shown


@pytest.mark.parametrize(
    "name", ["password", "db_password", "apiKey", "Authorization", "session-token", "pass"]
)
def test_fields_with_secrets_are_known_by_name(name):
    """A field whose name says that it is secret is one."""
    assert is_secret_name(name)


@pytest.mark.parametrize("name", ["key", "identity", "passed", "consumer", "at"])
def test_ordinary_fields_are_not_secret(name):
    """The fields of our own lines are shown."""
    assert not is_secret_name(name)
