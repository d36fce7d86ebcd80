"""The page's middleware for tenants, on PostgreSQL with row-level security."""

import re
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.orm import Session

from oncemq import App, NewMessage
from oncemq.testing import TestApp
from suites.kit.conftest import RETRY

POLICY = """
CREATE TABLE points (tenant TEXT, points INT);
ALTER TABLE points ENABLE ROW LEVEL SECURITY;
ALTER TABLE points FORCE ROW LEVEL SECURITY;
CREATE POLICY own_rows ON points USING (tenant = current_setting('app.tenant', true));
"""


@pytest.mark.server
def test_tenants_by_row_level_security(postgresql_url: str) -> None:
    """The page's middleware: each handler sees its own tenant's rows, also beside messages of other tenants."""
    page = (Path(__file__).parents[3] / "docs" / "middlewares.md").read_text()
    (source,) = re.findall(r'```python title="tenants.py"\n(.*?)```', page, re.DOTALL)
    names: dict[str, Any] = {}
    exec(compile(source, "tenants.py", "exec"), names)
    seen: dict[str, list[int]] = {}
    role = f"shopper_{uuid4().hex[:8]}"

    def handle(body: dict[str, Any], session: Session) -> None:
        session.execute(text(f"SET LOCAL ROLE {role}"))
        session.execute(
            text("INSERT INTO points VALUES (current_setting('app.tenant'), :points)"),
            {"points": body["points"]},
        )
        seen[body["id"]] = list(session.scalars(text("SELECT points FROM points ORDER BY points")))

    app = App("tenants", brokers={"main": "embedded://"}, database="sqlite://", defaults={"retry": RETRY})
    app.topic("orders", key="body.key", identity=["body.id"], strategies=["unique_key"])
    app.consumer(topic="orders", middlewares=[names["Tenant"]])(handle)

    def create(engine: Engine) -> None:
        with engine.begin() as connection:
            connection.execute(text(POLICY))
            connection.execute(text(f"CREATE ROLE {role}"))
            connection.execute(text(f"GRANT ALL ON points TO {role}"))
            schema = connection.execute(text("SELECT current_schema()")).scalar_one()
            connection.execute(text(f'GRANT USAGE ON SCHEMA "{schema}" TO {role}'))

    with TestApp(app, tables=create, database=postgresql_url) as test:
        sent = [
            NewMessage({"id": name, "key": name, "points": points}, headers={"tenant": tenant})
            for name, points, tenant in (("a", 1, "acme"), ("b", 2, "bolt"), ("c", 3, "acme"), ("d", 4, ""))
        ]
        outcomes = test.publish_many("orders", sent)
        with test.session() as session:
            session.execute(text(f"DROP OWNED BY {role}"))
            session.execute(text(f"DROP ROLE {role}"))
            session.commit()
    assert [outcome.status.value for outcome in outcomes] == [*["applied"] * 3, "dead letter"]
    assert outcomes[3].reason == "the message names no tenant"
    assert seen == {"a": [1], "b": [2], "c": [1, 3]}
