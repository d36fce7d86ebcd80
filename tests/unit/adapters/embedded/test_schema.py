"""The broker's tables in a file."""

import sqlite3
from pathlib import Path

import pytest

from oncemq.contracts.adapter import Subscription
from oncemq.errors import BrokerRefused
from support.brokers.embedded_broker import SUBSCRIPTION, consuming, publish, publishing, rows


def test_another_version_is_refused(tmp_path: Path):
    """A file of another schema version is refused with both versions and a way out."""
    path = tmp_path / "broker.db"
    with publishing(path):
        pass
    connection = sqlite3.connect(path)
    with connection:
        connection.execute("UPDATE oncemq_broker_version SET version = 99")
    connection.close()
    with pytest.raises(BrokerRefused, match=r"version 99.*version 1") as caught, publishing(path):
        pass
    assert str(path) in str(caught.value)


def test_other_tables_are_left_alone(tmp_path: Path):
    """The broker may live in a database that has tables of others."""
    path = tmp_path / "shop.db"
    connection = sqlite3.connect(path)
    with connection:
        connection.execute("CREATE TABLE orders (id INTEGER)")
        connection.execute("INSERT INTO orders VALUES (7)")
    connection.close()
    with publishing(path) as adapter:
        publish(adapter, b"x")
    assert rows(path, "SELECT id FROM orders") == [(7,)]


def test_a_message_goes_with_its_last_group(tmp_path: Path):
    """A message is kept until every group is done with it, and not longer."""
    path = tmp_path / "broker.db"
    other = Subscription("other", "topic", "other")
    with consuming(path, SUBSCRIPTION, other) as (adapter, sink):
        publish(adapter, b"x")
        first, second = sink.wait_for(2)
        adapter.acknowledge([first])
        assert rows(path, "SELECT count(*) FROM oncemq_broker_messages") == [(1,)]
        adapter.acknowledge([second])
        assert rows(path, "SELECT count(*) FROM oncemq_broker_messages") == [(0,)]


def test_first_group_gets_what_came_before_it(tmp_path: Path):
    """Messages of a topic without a group are kept for the first one; the second starts with what comes then."""
    path = tmp_path / "broker.db"
    with publishing(path) as publisher:
        publish(publisher, b"early")
    with consuming(path) as (adapter, sink):
        assert [delivery.message.body for delivery in sink.wait_for(1)] == [b"early"]
        with consuming(path, Subscription("late", "topic", "late")) as (_, late_sink):
            publish(adapter, b"both")
            assert [delivery.message.body for delivery in late_sink.wait_for(1)] == [b"both"]
            assert late_sink.stays_at(1, 0.2)
