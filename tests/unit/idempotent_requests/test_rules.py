"""Rules and ledgers that would protect nothing are refused, in words that say what to change."""

from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import create_engine

from oncemq.errors import ConfigError, LedgerError
from oncemq.idempotent_requests import NOT_DONE, RUN_AGAIN, RequestLedger, Rules
from oncemq.idempotent_requests.http import Request, fingerprint_of
from oncemq.ledger.records.requests import State


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"effects": "mail"}, "'database' or 'external'"),
        ({"abandoned": RUN_AGAIN}, "leave out `abandoned`"),
        ({"effects": "external", "abandoned": NOT_DONE}, "give the function"),
        ({"methods": frozenset({"POST", "GET"})}, "methods GET cannot be protected"),
        ({"methods": frozenset({"post"})}, "in capitals"),
        ({"retry_after": timedelta(0)}, "Retry-After"),
        ({"max_answer": -1}, "below zero"),
    ],
)
def test_unsafe_rules_are_refused(options: dict[str, Any], words: str) -> None:
    """When they are made, not when a request comes."""
    with pytest.raises(ConfigError, match=words):
        Rules(tenant=None, **options)


def test_whose_requests_these_are_must_be_said() -> None:
    """No default: without a tenant one caller could get another's answer."""
    with pytest.raises(TypeError, match="tenant"):
        Rules()  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"lease": timedelta(0)}, "longer than zero"),
        ({"keep": timedelta(seconds=5)}, "not longer than the lease"),
        ({"name": ""}, "needs a name"),
        ({"database": "sqlite://"}, "in memory"),
        ({"database": create_engine("sqlite:///x.db", isolation_level="AUTOCOMMIT")}, "AUTOCOMMIT"),
        ({"database": "oracle://x"}, "not a supported database"),
    ],
)
def test_unsafe_ledgers_are_refused(sqlite_database: str, options: dict[str, Any], words: str) -> None:
    """When they are made, not when a request comes."""
    with pytest.raises(ConfigError, match=words):
        RequestLedger(**{"database": sqlite_database, "name": "shop", **options})


def test_missing_tables_are_told(sqlite_database: str) -> None:
    """As a person's job, not as an outage."""
    ledger = RequestLedger(sqlite_database, "shop")
    with pytest.raises(LedgerError, match="no such table"):
        ledger.admit("id", "content", State.RUNNING)
    ledger.close()


def _asked(body: bytes, kind: str = "application/json") -> str:
    return fingerprint_of(Request("POST", "/payments", "", {"content-type": kind}, body))


def test_a_body_of_json_counts_by_its_value() -> None:
    """Order, spacing and spelling of numbers make no other request; other kinds count by every byte."""
    assert _asked(b'{"a": 1, "b": 2}') == _asked(b'{"b":2.0,"a":1}', "application/json; charset=utf-8")
    assert _asked(b'{"a": 1}') != _asked(b'{"a": 2}')
    assert _asked(b'{"a": 1}') != _asked(b'{"a": "1"}')
    assert _asked(b'{"a": 1}', "text/plain") != _asked(b'{"a":1}', "text/plain")
    assert _asked(b'{"a": 1, "a": 2}') != _asked(b'{"a": 2}')
    assert _asked(b"{") == _asked(b"{")
