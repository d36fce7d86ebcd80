"""Publishing from outside of handlers: at once and confirmed, or as part of a transaction of the caller's own."""

import asyncio
import multiprocessing
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine, create_engine, make_url, text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

import oncemq
from oncemq import App, AppPublisher, NewMessage, PartlyPublished, Unpublishable
from oncemq.engine.outbox import confirmed_publisher as publishing
from oncemq.errors import BrokerRefused
from oncemq.ledger import schema
from oncemq.ledger.database.engine import make_engine
from oncemq.ledger.messages import outbox
from support.apps.program import eventually
from support.effects import Base, effects, give


@pytest.fixture
def app(tmp_path: Path, database_url: str, fresh: str) -> App:
    """An app with one consumer on the embedded broker."""
    found = App(fresh, brokers={"main": f"embedded:///{tmp_path}/broker.db"}, database=database_url)
    found.topic("orders", key="body.id", strategies=["unique_key"])

    @found.consumer(topic="orders")
    def count(body: dict, session: Session) -> None:
        give(session, body)

    return found


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    """The caller's own engine on the app's database, with all tables there."""
    ours = make_engine(database_url)
    schema.create(ours)
    Base.metadata.create_all(ours)
    ours.dispose()
    engine = create_engine(database_url)
    yield engine
    engine.dispose()


@pytest.fixture
def publisher(app: App, engine: Engine) -> Iterator[AppPublisher]:
    """An open publisher of the app."""
    with app.publisher() as publisher:
        yield publisher


def order(name: str) -> dict[str, str]:
    """Return an order's body."""
    return {"id": name, "key": name}


def applied(app: App, engine: Engine) -> list[str]:
    """Return the orders that took effect when everything published has been consumed."""
    app.run(until_idle="0.3s")
    return sorted(effects(engine))


def emptied(app: App, engine: Engine) -> None:
    """Wait until nothing waits in the outbox."""

    def waiting() -> int:
        with engine.connect() as connection:
            return outbox.depth(connection, app.plan().name).messages

    eventually(lambda: waiting() == 0, "an empty outbox", timeout=20)


def test_a_message_is_confirmed_when_publish_returns(
    app: App, publisher: AppPublisher, engine: Engine
) -> None:
    """publish() returns the id of a message that the broker has."""
    assert publisher.publish("orders", order("a"), message_id="m-1") == "m-1"
    publisher.close()
    assert applied(app, engine) == ["a"]


def test_many_messages_are_confirmed_together(app: App, publisher: AppPublisher, engine: Engine) -> None:
    """publish_many() takes bodies and NewMessage alike, and returns their ids in order."""
    ids = publisher.publish_many("orders", [order("a"), NewMessage(order("b"), message_id="b-1")])
    publisher.close()
    assert ids[1] == "b-1"
    assert applied(app, engine) == ["a", "b"]


def test_a_committed_transaction_sends_its_message_at_once(
    app: App, publisher: AppPublisher, engine: Engine
) -> None:
    """What is published with a session is sent by the publishing process after the commit."""
    with Session(engine) as session, session.begin():
        publisher.publish("orders", order("a"), session=session)
    emptied(app, engine)
    assert applied(app, engine) == ["a"]


def test_a_rolled_back_transaction_sends_nothing(app: App, publisher: AppPublisher, engine: Engine) -> None:
    """A message of a transaction, or of a savepoint, that was rolled back is never sent; its neighbor is."""
    with Session(engine) as session:
        publisher.publish("orders", order("lost"), session=session)
        session.rollback()
        publisher.publish("orders", order("kept"), session=session)
        savepoint = session.begin_nested()
        publisher.publish("orders", order("undone"), session=session)
        savepoint.rollback()
        session.commit()
    emptied(app, engine)
    assert applied(app, engine) == ["kept"]


def test_a_connection_stands_for_a_session(app: App, publisher: AppPublisher, engine: Engine) -> None:
    """A plain connection's transaction decides as a session's does."""
    with engine.begin() as connection:
        publisher.publish("orders", order("a"), session=connection)
    with engine.connect() as connection:
        publisher.publish("orders", order("lost"), session=connection)
    emptied(app, engine)
    assert applied(app, engine) == ["a"]


def test_a_closed_publisher_leaves_stored_messages_to_others(app: App, engine: Engine) -> None:
    """A message that was committed after its publisher was closed is sent by anyone who relays next."""
    publisher = app.publisher()
    with Session(engine) as session:
        publisher.publish("orders", order("a"), session=session.connection())
        publisher.close()
        session.commit()
    with app.publisher():
        emptied(app, engine)
    assert applied(app, engine) == ["a"]


def test_another_database_is_refused(publisher: AppPublisher, tmp_path: Path) -> None:
    """A session on a database from which no worker would send is refused, in words."""
    other = create_engine(f"sqlite:///{tmp_path}/other.db")
    with Session(other) as session, pytest.raises(Unpublishable, match="has no table oncemq_outbox"):
        publisher.publish("orders", order("a"), session=session)
    other.dispose()
    ledger = make_engine(f"sqlite:///{tmp_path}/other.db")
    schema.create(ledger)
    with Session(ledger) as session, pytest.raises(Unpublishable, match="another database than the app's"):
        publisher.publish("orders", order("a"), session=session)
    ledger.dispose()


def test_wrong_calls_are_refused_in_words(publisher: AppPublisher) -> None:
    """An unknown topic, a body without its key and something that is no session say so at the call."""
    with pytest.raises(Unpublishable, match="did you mean 'orders'"):
        publisher.publish("order", order("a"))
    with pytest.raises(Unpublishable, match="id"):
        publisher.publish("orders", {"key": "a"})
    with pytest.raises(Unpublishable, match="takes a SQLAlchemy Session or Connection, not str"):
        publisher.publish("orders", order("a"), session="shop")  # type: ignore[arg-type]
    publisher.close()
    with pytest.raises(Unpublishable, match="the publisher is closed"):
        publisher.publish("orders", order("a"))


def test_an_app_without_a_database_publishes_plainly_only(tmp_path: Path) -> None:
    """A session needs the app's database; a message without one does not."""
    app = App("shop", brokers={"main": f"embedded:///{tmp_path}/broker.db"})
    app.topic("orders", key="body.id")
    engine = create_engine("sqlite://")
    with app.publisher() as publisher:
        assert publisher.publish("orders", order("a"))
        with Session(engine) as session, pytest.raises(Unpublishable, match="write database:"):
            publisher.publish("orders", order("a"), session=session)
    engine.dispose()


def test_what_is_not_confirmed_is_named(publisher: AppPublisher, monkeypatch: pytest.MonkeyPatch) -> None:
    """publish_many() says which messages the broker did not take; publish() raises its error."""
    refused = BrokerRefused("too large")

    def publish(_self: object, _topic: str, messages: list[object]) -> list[BrokerRefused | None]:
        return (
            [refused if number == 1 else None for number in range(len(messages))]
            if messages[1:]
            else [refused]
        )

    monkeypatch.setattr(publishing.Publishing, "publish", publish)
    with pytest.raises(
        PartlyPublished, match=r"1 of 3 messages to 'orders' are not confirmed; number 2: too large"
    ) as caught:
        publisher.publish_many("orders", map(order, "abc"))
    assert caught.value.errors == {1: refused}
    with pytest.raises(BrokerRefused, match="too large"):
        publisher.publish("orders", order("a"))


def test_all_threads_share_a_publisher(app: App, publisher: AppPublisher, engine: Engine) -> None:
    """Threads publish side by side, plainly and in transactions."""

    def publish(number: int) -> None:
        publisher.publish("orders", order(f"plain-{number}"))
        with Session(engine) as session, session.begin():
            publisher.publish("orders", order(f"own-{number}"), session=session)

    threads = [threading.Thread(target=publish, args=(number,)) for number in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    emptied(app, engine)
    assert applied(app, engine) == sorted(
        f"{kind}-{number}" for kind in ("plain", "own") for number in range(5)
    )


def test_a_forked_process_connects_by_itself(app: App, publisher: AppPublisher, engine: Engine) -> None:
    """A publisher that was used before a fork works in both processes."""
    publisher.publish("orders", order("before"))
    child = multiprocessing.get_context("fork").Process(target=_publish_in_child, args=(publisher,))
    child.start()
    child.join(30)
    assert child.exitcode == 0
    publisher.publish("orders", order("after"))
    publisher.close()
    assert applied(app, engine) == ["after", "before", "child"]


def _publish_in_child(publisher: AppPublisher) -> None:
    publisher.publish("orders", order("child"))
    publisher.close()


def test_no_handler_is_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A web service publishes by the worker's app.yaml although it lacks the worker's modules."""
    (tmp_path / "app.yaml").write_text(
        "app: shop\nbrokers: {main: {url: 'embedded:///broker.db'}}\ntopics: {orders: {key: body.id}}\n"
        "consumers: {pay: {topic: orders, handler: 'not_installed_here:pay', strategies: [none]}}\n"
    )
    monkeypatch.chdir(tmp_path)
    with oncemq.open_publisher() as publisher:
        assert publisher.publish("orders", order("a"))


def test_the_old_name_warns(tmp_path: Path) -> None:
    """`publisher_of` works for one more release."""
    with pytest.warns(DeprecationWarning, match="open_publisher"):
        assert isinstance(oncemq.publisher_of(tmp_path / "app.yaml"), AppPublisher)


@pytest.mark.server
def test_coroutines_publish_in_async_transactions(
    tmp_path: Path, postgresql_database: str, fresh: str
) -> None:
    """The async twin stores with an AsyncSession, sends after its commit, and publishes plainly."""
    ours = make_engine(postgresql_database)
    schema.create(ours)
    Base.metadata.create_all(ours)
    app = App(fresh, brokers={"main": f"embedded:///{tmp_path}/broker.db"}, database=postgresql_database)
    app.topic("orders", key="body.id", strategies=["unique_key"])
    app.consumer(topic="orders", name="count")(_count)

    async def publish() -> None:
        engine = create_async_engine(make_url(postgresql_database))
        async with app.async_publisher() as publisher:
            assert await publisher() is publisher
            await publisher.publish("orders", order("plain"))
            await publisher.publish_many("orders", [order("x"), order("y")])
            async with AsyncSession(engine) as session:
                await publisher.publish("orders", order("own"), session=session)
                await session.execute(text("SELECT 1"))
                await session.commit()
                await publisher.publish("orders", order("lost"), session=session)
                await session.rollback()
        await engine.dispose()

    asyncio.run(publish())
    assert applied(app, ours) == ["own", "plain", "x", "y"]
    ours.dispose()


def _count(body: dict, session: Session) -> None:
    give(session, body)
