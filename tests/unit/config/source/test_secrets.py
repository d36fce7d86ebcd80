"""A password appears in no error, no repr, no dump, whatever else is wrong around it."""

import io
import logging
import traceback

import pytest

from oncemq.config import load
from oncemq.config.json_schema import app_schema
from oncemq.config.source.secrets import SecretUrl
from oncemq.errors import ConfigError, OnceMQError
from support.declared import BASE, CATALOG, declare, loaded

CANARY = "c4n4ry-s3cret"
BROKER = 'brokers: {main: {url: "scripted://host"}}'
DATABASE = 'database: {url: "sqlite://"}'


@pytest.mark.parametrize(
    "text",
    [
        BASE.replace("scripted://host", f"scripted://user:{CANARY}@host") + "oops: 1\n",
        BASE.replace("scripted://host", f"nope://user:{CANARY}@host"),
        BASE.replace("scripted://host", f"user:{CANARY}@host"),
        BASE.replace('"scripted://host"', f'"scripted://host", password: [{CANARY}]'),
        BASE.replace('"scripted://host"', f'"scripted://host", password: {{a: {CANARY}}}'),
        BASE.replace('"scripted://host"', f'"scripted://host", password: *{CANARY}'),
        BASE.replace('"scripted://host"', f'"scripted://host", password: &{CANARY}'),
        BASE.replace('"scripted://host"', f'"scripted://host", password: !{CANARY}'),
        BASE.replace('"scripted://host"', f'"scripted://host", password: @{CANARY}'),
        BASE.replace('"scripted://host"', f'"scripted://host", password: {CANARY}: x'),
        BASE.replace('"scripted://host"', f'"scripted://host", password: "{CANARY}'),
        BASE.replace('"sqlite://"', f'"mongo://u:{CANARY}@host/x"'),
        BASE.replace('"sqlite://"', f'"postgresql+nope://u:{CANARY}@host/x"'),
        BASE.replace('"sqlite://"', f'"postgresql://u:{CANARY}@host:port/x"'),
        BASE.replace('"sqlite://"', f'"mongo://h/x?password={CANARY}"'),
        BASE.replace('"sqlite://"', f'"sqlite://", password: {CANARY}, hos: 1'),
        BASE + f'redis: {{url: "redis://:{CANARY}@host?db=1"}}\n',
        BASE + f'redis: {{url: "redis://host/{CANARY}", password: {CANARY}}}\n',
        BASE + f'redis: {{url: "redis://host", password: {CANARY}, hos: 1}}\n',
        BASE + "grace: ${SECRET}\n",
        BASE + "processes: ${SECRET}\n",
        BASE + 'http: {address: "${SECRET}"}\n',
        BASE + 'logging: {level: "${SECRET}"}\n',
        BASE.replace("app: shop", "app: ${SECRET} x"),
        BASE.replace("MODULE:handle", "${SECRET}"),
        BASE.replace("topic: orders", "topic: orders, keep: '${SECRET}'"),
    ],
)
def test_no_failure_shows_a_secret(tmp_path, text):
    """Neither the message nor a traceback with all its causes holds the password."""
    files = declare(tmp_path, text)
    with pytest.raises(OnceMQError) as caught:
        load(files, environment={"SECRET": CANARY}, catalog=CATALOG)
    shown = "".join(traceback.format_exception(caught.value)) + repr(caught.value)
    error: BaseException | None = caught.value
    while error is not None:
        shown += f"{error} {error!r}"
        error = error.__cause__ or error.__context__
    assert CANARY not in shown


def test_no_repr_shows_a_secret(tmp_path):
    """What is loaded can be printed and logged."""
    text = BASE.replace(
        BROKER,
        f'brokers: {{main: {{url: "scripted://u:{CANARY}@host", password: "{CANARY}", tls: {{key_password: {CANARY}}}}}}}',
    )
    text = text.replace(DATABASE, f'database: {{url: "postgresql://host/db", password: "{CANARY}"}}')
    text = text.replace("strategies: [decide]", f"strategies: [decide: {{token: {CANARY}}}]")
    app = loaded(tmp_path, text)
    stream = io.StringIO()
    logging.Formatter().format(logging.LogRecord("x", 20, "", 0, "%r %s", (app, app.model), None))
    shown = f"{app!r} {app.model} {app.model.brokers!r} {app.consumers!r} {stream.getvalue()}"
    assert CANARY not in shown
    assert CANARY in app.secrets


def test_the_schema_holds_no_values():
    """The JSON Schema is made from the model's types alone."""
    assert CANARY not in str(app_schema(CATALOG))


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("amqp://guest:secret@host:5672/v", "amqp://guest:***@host:5672/v"),
        ("amqp://guest@host", "amqp://guest@host"),
        ("amqp://u:p@ss@host", "amqp://u:***@host"),
        (
            "postgresql://h/db?sslpassword=x&sslmode=require",
            "postgresql://h/db?sslpassword=***&sslmode=require",
        ),
        ("sqlite:///a.db", "sqlite:///a.db"),
    ],
)
def test_urls_are_shown_without_their_password(url, shown):
    """A URL says everything but its secrets."""
    assert str(SecretUrl(url)) == shown


def test_a_config_error_escapes_control_characters(tmp_path):
    """A name from a file cannot move a terminal's cursor."""
    files = declare(tmp_path, BASE + '"\\e[2J": 1\n')
    with pytest.raises(ConfigError) as caught:
        load(files, environment={}, catalog=CATALOG)
    assert "\x1b" not in str(caught.value)


@pytest.mark.parametrize(("logging", "shown"), [("", False), ("logging: {row_values: true}\n", True)])
def test_dead_letters_show_values_of_rows_only_if_asked_for(tmp_path, logging, shown):
    """What a database quotes of a row is masked unless the app says that it may be read."""
    loaded = load(declare(tmp_path, BASE + logging), environment={}, catalog=CATALOG)
    text = loaded.plan.consumers[0].redact("violated\nDETAIL:  Key (card)=(4111) is not present")
    assert ("4111" in text) is shown
