"""A password in the configuration appears in no error, whatever is wrong around it."""

from pathlib import Path

import pytest

from oncemq.config import load
from oncemq.config.build.catalog import Catalog
from oncemq.errors import OnceMQError
from support.declared import CATALOG, declare
from support.hostile.canary import ENCODED, HARD, PASSWORD, assert_unseen, told_by

ENVIRONMENT = {"SECRET": PASSWORD, "HARD": HARD}

PLACES = {
    "URL": f'url: "scripted://user:{PASSWORD}@host"',
    "URL, percent-encoded": f'url: "scripted://user:{ENCODED}@host"',
    "URL, not encoded": f'url: "scripted://user:{HARD}@host"',
    "URL's parameter": f'url: "scripted://host/?sslpassword={PASSWORD}"',
    "URL without a scheme": f'url: "user:{PASSWORD}@host"',
    "plain text URL": f"url: scripted://user:{PASSWORD}@host",
    "password": f'url: "scripted://host", password: "{PASSWORD}"',
    "hard password": f'url: "scripted://host", password: "{HARD}"',
    "plain password": f'url: "scripted://host", password: {PASSWORD}',
    "password below": f'url: "scripted://host", tls: {{key_password: "{PASSWORD}"}}',
    "variable as password": 'url: "scripted://host", password: "${SECRET}"',
    "variable in URL": 'url: "scripted://u:${SECRET}@host"',
    "hard variable in URL": 'url: "scripted://u:${HARD}@host"',
    "variable's default": f'url: "scripted://host", password: "${{MISSING_TOO:-{PASSWORD}}}"',
}

MISTAKES = {
    "mapping as field": "{a: 1}: x, PLACE",
    "missing variable": 'PLACE, username: "${MISSING}"',
    "broken variable": 'PLACE, username: "${MISSING"',
    "unclosed quote": 'PLACE, username: "abc',
    "unclosed quote before": '"abc, PLACE',
    "unclosed brace": "PLACE, tls: {a: 1",
    "closed twice": "PLACE}}}, x: {{",
    "alias": "PLACE, tls: *anchor",
    "anchor": "PLACE, tls: &anchor {a: 1}",
    "tag": "PLACE, tls: !!python/object:os.system {}",
    "field twice": "PLACE, url: 1",
    "no comma": "PLACE username: x",
    "invalid escape": 'PLACE, username: "\\q"',
    "control character": "PLACE, username: \x01",
    "colon": "PLACE, username: a: b",
    "two values": "PLACE, username: 'a' 'b'",
    "list": "PLACE, username: [1]",
    "at sign": "PLACE, username: @x",
    "lone surrogate": 'PLACE, username: "\\ud800"',
}

APP = """\
app: shop
brokers: {main: {FIELDS}}
database: {url: "sqlite://"}
topics: {orders: {key: body.id, strategies: [decide]}}
consumers: {count: {topic: orders, handler: "MODULE:handle"}}
"""

URLS = [
    "{scheme}://user:{password}@host:port/x",
    "{scheme}://user:{password}@host:99999999/x",
    "{scheme}://user:{password}@[::1/x",
    "{scheme}://user:{password}",
    "{scheme}://:{password}@",
    "{scheme}:user:{password}@host",
    "{scheme}:/user:{password}@host",
    "{scheme}:///user:{password}@host",
    "user:{password}@host",
    "{scheme}://user:{password}@host/?verify=maybe&heartbeat=x",
    "{scheme}://host/x?password={password}",
    "{scheme}://user:{password}@host,user:{password}@other:x/",
]
SCHEMES = ["amqp", "amqps", "embedded", "nope", "postgresql+psycopg", "mysql+pymysql", "mongodb"]


@pytest.mark.parametrize("mistake", MISTAKES)
@pytest.mark.parametrize("place", PLACES)
def test_a_mistake_beside_a_password_does_not_show_it(tmp_path: Path, place: str, mistake: str) -> None:
    """Neither the problems nor the traceback with all its causes hold the password."""
    fields = MISTAKES[mistake].replace("PLACE", PLACES[place])
    files = declare(tmp_path, APP.replace("FIELDS", fields))
    with pytest.raises(OnceMQError) as caught:
        load(files, environment=ENVIRONMENT, catalog=CATALOG)
    assert_unseen(told_by(caught.value))


@pytest.mark.parametrize("password", [PASSWORD, ENCODED, HARD], ids=["plain", "encoded", "hard"])
@pytest.mark.parametrize("url", URLS)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_strange_url_does_not_show_its_password(
    tmp_path: Path, scheme: str, url: str, password: str
) -> None:
    """Whether a broker's or database's URL is refused or taken, nothing shows what it holds."""
    text = url.format(scheme=scheme, password=password)
    field = "database" if "+" in scheme or scheme == "mongodb" else "broker"
    broker, database = (text, "sqlite://") if field == "broker" else ("embedded://canary", text)
    app = (
        APP.replace(
            "FIELDS",
            f'url: "{broker}", hosts: ["{text}"]' if scheme.startswith("amqp") else f'url: "{broker}"',
        )
        .replace('"sqlite://"', f'"{database}"')
        .replace("decide", "unique_key")
    )
    try:
        loaded = load(declare(tmp_path, app), environment={}, catalog=Catalog())
    except OnceMQError as error:
        assert_unseen(told_by(error))
        return
    plan = loaded.plan
    assert_unseen(loaded, loaded.model, plan, plan.engine, list(plan.adapters.values()), plan.consumers)
    assert_unseen(*loaded.warnings, *plan.warnings)
    if plan.engine is not None:
        plan.engine.dispose()
