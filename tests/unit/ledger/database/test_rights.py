"""The account's rights on the ledger's tables are tried before anything runs, and what is missing is named."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

import pytest
from sqlalchemy import Engine, create_engine, make_url, text

from oncemq.errors import LedgerError
from oncemq.ledger import schema
from oncemq.ledger.database.engine import make_engine
from support.database.shared_database import shared_database

MYSQL = "GRANT SELECT, INSERT, UPDATE, DELETE ON `{database}`.* TO {account}"
LEAST = {
    "postgresql": "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO {account}",
    "mysql": MYSQL,
}
"""What the documentation says that an account needs."""


class Account:
    """An account with few rights on a database that has a ledger.

    Args:
        url: of the database, by its owner.
    """

    def __init__(self, url: str) -> None:
        self.owner = make_engine(url)
        schema.create(self.owner)
        self.name = f"u{uuid4().hex[:10]}"
        self.url = make_url(url).set(username=self.name, password="secret")
        self.kind = self.url.get_backend_name()
        self.account = f'"{self.name}"' if self.kind == "postgresql" else f"'{self.name}'@'%'"
        made = "LOGIN PASSWORD 'secret'" if self.kind == "postgresql" else "IDENTIFIED BY 'secret'"
        self.run(f"CREATE {'ROLE' if self.kind == 'postgresql' else 'USER'} {self.account} {made}")
        self.engine = make_engine(self.url.render_as_string(hide_password=False))

    def run(self, statement: str) -> None:
        """Run a statement as the owner."""
        with self.owner.begin() as connection:
            connection.execute(text(statement))

    def grant_least(self) -> None:
        """Give what the documentation says."""
        self.run(LEAST[self.kind].format(database=self.url.database, account=self.account))

    def refusal(self) -> str:
        """Return what is said to this account."""
        try:
            schema.ensure(self.engine)
            schema.insist_on_rights(self.engine)
        except LedgerError as error:
            return str(error)
        return "nothing"

    def close(self) -> None:
        """Remove the account."""
        self.engine.dispose()
        if self.kind == "postgresql":
            self.run(f"DROP OWNED BY {self.account}")
        self.run(f"DROP {'ROLE' if self.kind == 'postgresql' else 'USER'} {self.account}")
        self.owner.dispose()


@pytest.fixture(params=["postgresql", "mariadb"])
def account(request: pytest.FixtureRequest) -> Iterator[Account]:
    """An account without any right on the tables."""
    with shared_database(request.getfixturevalue(f"{request.param}_url")) as url:
        account = Account(url)
        yield account
        account.close()


def test_the_documented_rights_suffice(account: Account) -> None:
    """Four rights on the tables, none on sequences."""
    account.grant_least()
    schema.ensure(account.engine)
    schema.insist_on_rights(account.engine)
    with account.engine.begin() as connection:
        connection.execute(schema.history.TABLE.insert(), [_history_row()])


def _history_row() -> dict[str, object]:
    names = dict.fromkeys(("consumer", "topic", "key", "identity", "outcome", "reason"), "x")
    return {**names, "attempt": 1, "at": datetime(2026, 1, 1, tzinfo=UTC)}


def test_an_account_that_only_reads_is_refused_with_the_grants(account: Account) -> None:
    """The text names the missing rights, and its statements, run by an administrator, are enough."""
    every = "ALL TABLES IN SCHEMA public" if account.kind == "postgresql" else f"`{account.url.database}`.*"
    account.run(f"GRANT SELECT ON {every} TO {account.account}")
    said = account.refusal()
    assert "lacks INSERT, UPDATE, DELETE on oncemq_processed" in said
    for statement in said.partition("Have an administrator run: ")[2].split("; "):
        account.run(statement.rstrip(";"))
    schema.insist_on_rights(account.engine)


def test_an_account_without_any_right_is_refused_in_words(account: Account) -> None:
    """Also where it may not even read the ledger's version."""
    if account.kind == "mysql":
        account.run(f"GRANT CREATE ON `{account.url.database}`.* TO {account.account}")
    assert "lacks SELECT on oncemq_schema" in account.refusal()


def test_a_single_missing_right_is_named(account: Account) -> None:
    """It could be one that is used rarely, such as deleting old records."""
    account.grant_least()
    if account.kind == "postgresql":
        account.run(f"REVOKE DELETE ON oncemq_history FROM {account.account}")
        assert "lacks DELETE on oncemq_history. " in account.refusal()
        return
    account.run(f"REVOKE DELETE ON `{account.url.database}`.* FROM {account.account}")
    assert "lacks DELETE on oncemq_processed;" in account.refusal()


def test_a_sequence_of_an_older_ledger_is_tried(postgresql_url: str) -> None:
    """Ledgers of before have numbers from sequences, on which an account needs a right of its own."""
    with shared_database(postgresql_url) as url:
        account = Account(url)
        account.run("ALTER TABLE oncemq_history ALTER COLUMN id DROP IDENTITY")
        account.run("CREATE SEQUENCE old_numbers OWNED BY oncemq_history.id")
        account.run("ALTER TABLE oncemq_history ALTER COLUMN id SET DEFAULT nextval('old_numbers')")
        account.grant_least()
        said = account.refusal()
        assert f"GRANT USAGE ON SEQUENCE public.old_numbers TO {account.account}" in said
        account.close()


def test_a_read_only_database_is_refused(postgresql_url: str) -> None:
    """A replica, or a primary that failed over, takes no work."""
    with shared_database(postgresql_url) as url:
        account = Account(url)
        account.grant_least()
        account.run(f"ALTER ROLE {account.account} SET default_transaction_read_only = on")
        assert "is read-only: give the primary's address" in account.refusal()
        account.close()


def test_a_read_only_file_is_refused(tmp_path: Path) -> None:
    """SQLite says so at the first statement that writes."""
    url = f"sqlite:///{tmp_path / 'shop.db'}"
    engine = make_engine(url)
    schema.create(engine)
    engine.dispose()
    reading = create_engine(f"sqlite:///file:{tmp_path / 'shop.db'}?mode=ro&uri=true")
    with pytest.raises(LedgerError, match="is read-only"):
        schema.insist_on_rights(reading)
    reading.dispose()


def test_trying_changes_nothing(engine: Engine) -> None:
    """On every database the trials touch no row."""
    schema.insist_on_rights(engine)
    with engine.connect() as connection:
        assert connection.execute(text("SELECT count(*) FROM oncemq_schema")).scalar() == 1
