"""A publisher with transactions, on a broker that does what a test says: what it is told, and when."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import Engine, exc

from oncemq import App, UniqueViolation
from oncemq.contracts.transactional_messages import Decision, Held
from oncemq.engine.plan import AppPlan
from oncemq.engine.publishers.transactional_publisher import TransactionalPublisher
from oncemq.engine.transaction.caller_transaction import CallerTransaction
from oncemq.errors import BrokerUnavailable, ConfigError, Unpublishable
from oncemq.ledger import schema
from oncemq.ledger.database.engine import make_engine
from oncemq.ledger.messages import transactions
from oncemq.testing.fake_clock import FakeClock
from support.effects import Base, Name

ORDER: Mapping[str, Any] = {"id": "o1"}


class Broker:
    """Holds messages and writes down what it is told; `ask` is what a real one asks, at any time."""

    def __init__(self, adapter: Any) -> None:
        self.capabilities = replace(adapter.capabilities, transactions=True)
        self.told: list[tuple[str, bool, bool]] = []
        self.away = False
        self.ask: Callable[[str], Decision] = lambda _: Decision.UNKNOWN
        self.asks_at_once = False

    def hold_messages(self, _ledger: str, decide: Callable[[str], Decision]) -> "Broker":
        """Be what holds them, too."""
        self.ask = decide
        return self

    def hold(self, topic: str, _options: Mapping[str, Any], _message: object) -> Held:
        """Hold every message by the same id."""
        if self.asks_at_once:
            assert self.ask("held") is Decision.ROLL_BACK
        return Held("held", topic, "here")

    def finish(self, held: Held, *, commit: bool, again: bool = False) -> None:
        """Write it down."""
        if self.away:
            raise BrokerUnavailable("it is away")
        self.told.append((held.id, commit, again))

    def close(self) -> None:
        """Do nothing."""


@pytest.fixture
def plan(sqlite_database: str, tmp_path: Any) -> Iterator[AppPlan]:
    """Return an app whose broker is the one above."""
    app = App("shop", brokers={"broker": f"embedded:///{tmp_path}/broker.db"}, database=sqlite_database)
    app.topic("paid", key="body.id")
    found = app.plan()
    yield replace(found, adapters={"broker": Broker(found.adapters["broker"])}, clock=FakeClock())  # type: ignore[dict-item]
    assert found.engine is not None
    found.engine.dispose()


@pytest.fixture
def broker(plan: AppPlan) -> Broker:
    """Return that broker."""
    found: Any = plan.adapters["broker"]
    assert isinstance(found, Broker)
    return found


@pytest.fixture
def engine(sqlite_database: str) -> Iterator[Engine]:
    """Lend the database, with all tables."""
    engine = make_engine(sqlite_database)
    schema.create(engine)
    Base.metadata.create_all(engine)
    yield engine
    engine.dispose()


@pytest.fixture
def publisher(plan: AppPlan, engine: Engine) -> Iterator[TransactionalPublisher]:
    """Lend an open publisher."""
    with TransactionalPublisher(plan) as publisher:
        yield publisher


def names(engine: Engine) -> list[str]:
    """Return what transactions have left."""
    with engine.connect() as connection:
        return [row.name for row in connection.execute(Name.__table__.select())]


def test_a_commit_is_told_after_it(publisher: TransactionalPublisher, broker: Broker, engine: Engine) -> None:
    """The block's rows are there, and the broker may deliver."""
    with publisher.transaction("paid", ORDER) as session:
        session.add(Name(name="o1"))
        assert not broker.told
    assert names(engine) == ["o1"]
    assert broker.told == [("held", True, False)]
    assert broker.ask("held") is Decision.COMMIT


def test_an_exception_rolls_back(publisher: TransactionalPublisher, broker: Broker, engine: Engine) -> None:
    """Nothing is left, not even what the block believed to have committed, and the broker forgets the message."""

    def fail() -> None:
        with publisher.transaction("paid", ORDER) as session:
            session.add(Name(name="o1"))
            session.commit()
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert names(engine) == []
    assert broker.told == [("held", False, False)]
    assert broker.ask("held") is Decision.ROLL_BACK


def test_a_hidden_database_error_rolls_back(
    publisher: TransactionalPublisher, broker: Broker, engine: Engine
) -> None:
    """A block that swallowed the failure of a flush has not had its effect, so its message is forgotten."""

    def hide() -> None:
        with publisher.transaction("paid", ORDER) as session:
            session.add(Name(name="o1"))
            session.flush()
            session.add(Name(name="o1"))
            with suppress(exc.IntegrityError):
                session.flush()

    with pytest.raises(UniqueViolation):
        hide()
    assert names(engine) == []
    assert broker.told == [("held", False, False)]


def test_a_refused_handler_cannot_commit(
    publisher: TransactionalPublisher, broker: Broker, engine: Engine
) -> None:
    """A broker that asks before the transaction has begun is told that there is none; then there must be none."""
    broker.asks_at_once = True
    with pytest.raises(exc.IntegrityError), publisher.transaction("paid", ORDER) as session:
        session.add(Name(name="o1"))
    assert names(engine) == []
    assert broker.told == [("held", False, False)]


def test_a_lost_answer_to_a_commit_is_looked_up(
    publisher: TransactionalPublisher, broker: Broker, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ledger says that the commit took place, so nothing is raised and the message is delivered."""
    finish = CallerTransaction.finish

    def lose(self: CallerTransaction, *arguments: Any) -> None:
        finish(self, *arguments)
        raise exc.OperationalError("COMMIT", {}, ConnectionError("lost"))

    monkeypatch.setattr(CallerTransaction, "finish", lose)
    with publisher.transaction("paid", ORDER) as session:
        session.add(Name(name="o1"))
    assert names(engine) == ["o1"]
    assert broker.told == [("held", True, False)]


def test_a_failed_commit_is_raised(
    publisher: TransactionalPublisher, broker: Broker, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ledger says that it did not take place."""

    def fail(self: CallerTransaction, *_: Any) -> None:
        self.roll_back()
        raise exc.OperationalError("COMMIT", {}, ConnectionError("lost"))

    monkeypatch.setattr(CallerTransaction, "finish", fail)
    with pytest.raises(exc.OperationalError), publisher.transaction("paid", ORDER) as session:
        session.add(Name(name="o1"))
    assert names(engine) == []
    assert broker.told == [("held", False, False)]


def test_a_broker_that_is_away_is_told_later(
    publisher: TransactionalPublisher, broker: Broker, plan: AppPlan, engine: Engine
) -> None:
    """After the commit nothing is raised; when its time has come, a process that is there tells the broker once."""
    broker.away = True
    with publisher.transaction("paid", ORDER) as session:
        session.add(Name(name="o1"))
    broker.away = False
    publisher.catch_up(engine)
    assert not broker.told
    assert isinstance(plan.clock, FakeClock)
    plan.clock.advance(timedelta(seconds=31))
    publisher.catch_up(engine)
    publisher.catch_up(engine)
    assert broker.told == [("held", True, True)]
    plan.clock.advance(timedelta(minutes=5))
    publisher.catch_up(engine)
    assert len(broker.told) == 1


def test_what_a_broker_heard_by_asking_is_not_told_again(
    publisher: TransactionalPublisher, broker: Broker, plan: AppPlan, engine: Engine
) -> None:
    """A second telling would deliver the message twice."""
    broker.away = True
    with publisher.transaction("paid", ORDER) as session:
        session.add(Name(name="o1"))
    broker.away = False
    assert broker.ask("held") is Decision.COMMIT
    assert isinstance(plan.clock, FakeClock)
    plan.clock.advance(timedelta(seconds=31))
    publisher.catch_up(engine)
    assert not broker.told


def test_a_ledger_keeps_its_id(engine: Engine) -> None:
    """Brokers ask by it, over all restarts."""
    clock = FakeClock()
    with engine.begin() as connection:
        first = transactions.ledger_id(connection, clock.now())
    with engine.begin() as connection:
        assert transactions.ledger_id(connection, clock.now()) == first


def test_a_broker_that_cannot_hold_messages_is_refused(
    publisher: TransactionalPublisher, broker: Broker, plan: AppPlan
) -> None:
    """The error says what to do instead; nothing runs."""
    broker.capabilities = replace(broker.capabilities, transactions=False)
    with (
        TransactionalPublisher(plan) as other,
        pytest.raises(Unpublishable, match=r"oncemq\.Publisher"),
        other.transaction("paid", ORDER),
    ):
        pytest.fail("the block ran")


def test_an_app_without_a_database_is_refused(plan: AppPlan) -> None:
    """There is no transaction that a message could depend on."""
    with pytest.raises(ConfigError, match="database"):
        TransactionalPublisher(replace(plan, engine=None))
