"""Secrets are masked in the text of a configuration, which is else as it was written, and are filled in again from another text."""

from dataclasses import replace
from pathlib import Path

import pytest

from oncemq.common.redaction import MaskedText
from oncemq.config.source.masking import filled, masked, version_of
from oncemq.errors import ConfigError

FILE = Path("app.yaml")
ENVIRONMENT = {
    "TOKEN": "token-of-the-environment",
    "USER_OF_MAIN": "shop",
    "PASSWORD_OF_MAIN": "from-outside",
}
TEXT = """\
# until May the password: orange-juice
app: shop
brokers:
  main: {url: "amqp://${USER_OF_MAIN}:${PASSWORD_OF_MAIN}@rabbit/shop"}   # before: amqp://shop:green-tea@old
  other: {url: 'amqps://shop:p@ss/word@rabbit/v?x=1&token=black-tea', password: "coffee \\" black"}
database:
  url: postgresql+psycopg://shop-user:shop-user@db/shop
  token: ${TOKEN}
  secret: ${TOKEN:-white-wine}
topics:
  orders: {key: body.token, identity: [body.id, "body.password"], note: "token-of-the-environment"}
consumers:
  password: {topic: orders, handler: "shop:pay"}
  mail:
    api_key: |
      red
      wine
    # shop-user is written here
    topic: orders
"""
SHOWN = """\
# until May the password: ***
app: shop
brokers:
  main: {url: "amqp://${USER_OF_MAIN}:${PASSWORD_OF_MAIN}@rabbit/shop"}   # before: amqp://shop:***@old
  other: {url: 'amqps://shop:***@rabbit/v?x=1&token=***', password: '***'}
database:
  url: postgresql+psycopg://***:***@db/shop
  token: ${TOKEN}
  secret: '***'
topics:
  orders: {key: body.token, identity: [body.id, "body.password"], note: "***"}
consumers:
  password: {topic: orders, handler: "shop:pay"}
  mail:
    api_key: '***'
    # *** is written here
    topic: orders
"""


def _masked(text: str) -> MaskedText:
    (found,) = masked({FILE: text.encode()}, ENVIRONMENT)
    return found


def _filled(former: MaskedText, present: str) -> str:
    return filled([former], {FILE: present.encode()}, ENVIRONMENT)[FILE].decode()


def test_what_is_written_out_is_masked_and_references_stay() -> None:
    """Passwords of URLs, fields of a secret's name, comments, and what the environment holds; the rest is as it was."""
    assert _masked(TEXT) == MaskedText("app.yaml", SHOWN, exact=True)
    assert _masked(SHOWN).text == SHOWN


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("amqp://a:orange@h1,amqp://b:juice@h2", "amqp://a:***@h2"),
        ("http://host/path,amqp://b:juice@h2/v", "http://host/path,amqp://b:***@h2/v"),
        ("http://host:80/x@y", "http://host:***@y"),
        ("amqp://shop@host/v amqp://b:juice@h2", "amqp://shop@host/v amqp://b:***@h2"),
        ("embedded:///broker.db", "embedded:///broker.db"),
    ],
)
def test_every_password_of_a_value_is_masked(url: str, shown: str) -> None:
    """In a list of URLs also what stands between; rather too much than too little."""
    assert _masked(f"app: shop\nurls: '{url}'\n").text == f"app: shop\nurls: '{shown}'\n"


@pytest.mark.parametrize("text", ["://" * 99_999, "?" * 300_000, "&a" * 150_000, "://a:" + "@" * 300_000])
def test_masking_takes_no_longer_than_the_text_is_long(text: str) -> None:
    """A file of 300 KB is no attack; quadratic steps would take minutes."""
    assert _masked(f'app: shop\nnote: "{text}"\n').exact


def test_the_version_follows_from_the_text_alone() -> None:
    """Neither from secrets, which could be guessed from it, nor from a machine's environment."""
    version = version_of({FILE: TEXT.encode()})
    assert version == version_of({Path("/etc/app.yaml"): TEXT.replace("coffee", "milk").encode()})
    assert version != version_of({FILE: TEXT.replace("x=1", "x=2").encode()})
    assert len(version) == 12


def test_secrets_come_from_the_present_text() -> None:
    """Also where the text around them was another."""
    comments = {"orange-juice": "***", "green-tea": "***", "# shop-user is": "# *** is"}
    former = _masked(TEXT.replace("@rabbit/", "@rabbit-1/").replace("@db/shop", "@db-1/shop"))
    whole = _filled(former, TEXT)
    expected = TEXT.replace("@rabbit/", "@rabbit-1/").replace("@db/shop", "@db-1/shop")
    for secret, shown in comments.items():
        expected = expected.replace(secret, shown)
    assert whole == expected


def test_a_place_without_a_secret_is_named() -> None:
    """Nothing is guessed."""
    former = replace(_masked(TEXT), text=SHOWN)
    without = TEXT.replace("  secret: ${TOKEN:-white-wine}\n", "").replace("shop:p@ss/word@", "")
    with pytest.raises(ConfigError) as refused:
        _filled(former, without)
    first, second = map(str, refused.value.problems)
    assert first.startswith("app.yaml: brokers.other.url held a secret, which the history does not keep")
    assert second.startswith("app.yaml: database.secret held a secret")


@pytest.mark.parametrize(
    "text",
    [
        "app: [\npassword: orange-juice\nurl: amqp://shop:orange-juice@rabbit/v",
        "app: &name shop\npassword: 'orange-juice'",
        "\x00password=orange-juice",
    ],
)
def test_what_is_no_yaml_is_masked_by_its_looks(text: str) -> None:
    """It is kept for the eyes, and cannot be written back."""
    found = _masked(text)
    assert not found.exact
    assert "orange-juice" not in found.text
    assert "***" in found.text
