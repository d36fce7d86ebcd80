"""Parts of programs on the pages, which are no whole program: each runs in a small frame, or is listed with the reason."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import httpx
import pytest
import sqlalchemy
from fastapi import Depends, FastAPI
from sqlalchemy import create_engine, func, select
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

import oncemq
from oncemq import App, idempotent_requests
from oncemq.idempotent_requests import RequestLedger
from oncemq.testing import TestApp
from oncemq_adapters.rocketmq import RocketMQMetadata
from oncemq_strategies.redisson import BloomFilter, ExpirableSemaphore, Lock
from support.apps.page_parts import ROOT, Part, parts
from support.apps.page_tables import Account, Base, Event, Order, Points, User

NOT_RUN = {
    ("docs/dashboard.md", "Mount("): "tests/unit/dashboard/test_mounted.py mounts the page",
    ("docs/migrations/celery.md", "@celery.task"): "a program of Celery, before the change",
    ("docs/migrations/dramatiq.md", "@dramatiq.actor"): "a program of Dramatiq, before the change",
    ("docs/migrations/faststream.md", "@broker.subscriber"): "a program of FastStream, before the change",
    ("docs/migrations/pika.md", "def on_message"): "a program of pika, before the change",
    ("docs/publishing.md", "with publisher.transaction("): "tests/suites/rocketmq tests such transactions",
    ("docs/rocketmq-client.md", "with Client("): "tests/suites/rocketmq/test_client.py runs it",
    ("docs/rocketmq.md", "with publisher.transaction("): "tests/suites/rocketmq tests such transactions",
    (
        "docs/writing-a-strategy.md",
        "class TestAppliedOnce",
    ): "tests/suites/test_documented_strategy.py runs it",
    ("docs/writing-an-adapter.md", "class MemoryHarness"): "tests/suites/test_documented_adapter.py runs it",
}
"""Parts by page and a few of their words, and why this file does not run them."""
RUN: list[tuple[str, str]] = []
"""Parts that tests of this file run."""


def shows(page: str, words: str) -> Callable[[Callable[..., None]], Any]:
    """Have a test run the part of `page` with these words, as its argument `part`."""
    RUN.append((page, words))
    return pytest.mark.parametrize("part", [Part(page, words)], ids=[f"{Path(page).stem}"])


def test_every_part_is_run_or_listed() -> None:
    """A new part of a page needs a test, or the reason why it has none; one that went is noticed."""
    found = parts()
    listed = [*RUN, *NOT_RUN]
    unknown = [
        f"{page}: {text.splitlines()[0]}"
        for page, text in found
        if not any(page == known and words in text for known, words in listed)
    ]
    assert unknown == []
    counts = {entry: sum(page == entry[0] and entry[1] in text for page, text in found) for entry in listed}
    assert [entry for entry, count in counts.items() if count != 1] == []


def started(*handlers: Any, **topics: dict[str, Any]) -> TestApp:
    """Return an app whose topics `orders`, and those given, have these handlers."""
    app = App("page", brokers={"local": "embedded://"}, database="sqlite://")
    for name, options in ({"orders": {}} | topics).items():
        app.topic(
            name.replace("_", "."), **({"key": "body.order_id", "strategies": ["unique_key"]} | options)
        )
    for topic, handler in zip(["orders", *topics], handlers, strict=False):
        app.consumer(topic=topic.replace("_", "."))(handler)
    return TestApp(app, tables=Base.metadata)


def total(app: TestApp, column: Any) -> Any:
    """Return the sum of a column."""
    with app.session() as session:
        return session.scalar(select(func.sum(column)))


@shows("README.md", "def award_points")
def test_the_first_handler_gives_points(part: Part) -> None:
    """One for every ten paid."""
    with started(part.run().award_points) as app:
        assert app.publish("orders", {"order_id": "A-1", "user": "ada", "amount": 120}).applied
        assert total(app, Points.points) == 12


@shows("docs/app-in-python.md", 'app = App("shop"')
def test_the_app_in_python_runs(part: Part) -> None:
    """Its decorated function is the handler."""
    with TestApp(part.run().app, tables=Base.metadata) as app:
        assert app.publish("order.paid", {"order_id": "A-1"}).applied
        assert total(app, Points.points) == 30


@shows("docs/async-handlers.md", "async def pay")
def test_the_async_handler_pays(part: Part) -> None:
    """Its AsyncSession is in the message's transaction."""
    with started(part.run().pay) as app:
        with app.session() as session, session.begin():
            session.add(Account(id="a", balance=100))
        paid = {"order_id": "A-1", "id": "A-1", "account_id": "a", "amount": 30}
        assert app.publish("orders", paid).applied
        assert total(app, Account.balance) == 70


@shows("docs/databases.md", "import oncemq.alembic")
def test_alembic_leaves_the_ledger_alone(part: Part) -> None:
    """What `env.py` hands over leaves out the framework's tables, and nothing else."""
    given: dict[str, Any] = {}
    part.run(context=SimpleNamespace(configure=given.update), connection=None, target_metadata=None)
    include = given["include_name"]
    assert not include("oncemq_processed", "table", {})
    assert include("points", "table", {})


@shows("docs/failures.md", "def compensate")
def test_the_customer_of_what_has_finally_failed_is_told(part: Part) -> None:
    """The function publishes with the reason."""

    def ship(order: dict[str, Any]) -> None:
        raise oncemq.Reject(f"no carrier for {order['order_id']}")

    app = App("page", brokers={"local": "embedded://"}, database="sqlite://")
    for name in ("orders", "order.not-shipped"):
        app.topic(name, key="body.order_id", strategies=["unique_key"])
    app.consumer(topic="orders", on_dead=part.run().compensate)(ship)
    with TestApp(app) as running:
        running.publish("orders", {"order_id": "A-1"})
        (told,) = running.published("order.not-shipped")
    assert told.body == {"order_id": "A-1", "why": "rejected"}


@shows("docs/delayed-messages.md", "def cancel_unpaid")
def test_an_order_that_is_not_paid_is_cancelled(part: Part) -> None:
    """The other one is paid in time, so its message for later is forgotten."""
    found = part.run()
    due: dict[str, Any] = {"identity": "key"}
    topics = {"order_paid": due, "payment_due": due}
    with started(found.place, found.pay, found.cancel_unpaid, **topics) as app:
        for name in ("a", "b"):
            app.publish("orders", {"order_id": name, "id": name})
        app.publish("order.paid", {"order_id": "b"})
        app.clock.advance("31m")
        with app.session() as session:
            states = {order.id: order.state for order in session.scalars(select(Order))}
    assert states == {"a": "cancelled", "b": "paid"}


@shows("docs/failures.md", "raise BadItems(bad)")
def test_a_batch_names_an_unknown_user(part: Part) -> None:
    """The other orders get their points."""
    with started(part.run().award_many) as app:
        with app.session() as session, session.begin():
            session.add(User(id="ada"))
        sent = [
            {"order_id": f"A-{number}", "user_id": user} for number, user in enumerate(("ada", "bob", "ada"))
        ]
        outcomes = app.publish_many("orders", sent)
        assert [outcome.status.value for outcome in outcomes] == ["applied", "dead letter", "applied"]
        assert total(app, Points.points) == 2


@shows("docs/batches.md", "def award_many")
def test_a_page_s_batch_is_one_insert(part: Part) -> None:
    """Each order gets its point."""
    with started(part.run().award_many) as app:
        outcomes = app.publish_many("orders", [{"order_id": f"A-{number}"} for number in range(3)])
        assert all(outcome.applied for outcome in outcomes)
        assert total(app, Points.points) == 3


@shows("docs/performance.md", "def award_many")
def test_a_batch_is_one_insert(part: Part) -> None:
    """Each order gets its point."""
    with started(part.run().award_many) as app:
        outcomes = app.publish_many("orders", [{"order_id": f"A-{number}"} for number in range(3)])
        assert all(outcome.applied for outcome in outcomes)
        assert total(app, Points.points) == 3


@shows("docs/publishing.md", "def pay(order: OrderPlaced")
def test_a_handler_publishes(part: Part) -> None:
    """With its effect."""
    with started(part.run().pay, order_paid={}) as app:
        assert app.publish("orders", {"order_id": "A-1", "id": "A-1"}).applied
        assert [message.body for message in app.published("order.paid")] == [{"order_id": "A-1"}]


FILES = """\
app: page
brokers: {local: {url: "embedded:///broker.db"}}
database: {url: "sqlite:///page.db"}
topics:
  order.paid: {key: body.order_id, strategies: [unique_key]}
"""


@pytest.fixture
def web_service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> sqlalchemy.Engine:
    """Return the engine of an app in the current folder, with its tables."""
    (tmp_path / "app.yaml").write_text(FILES)
    monkeypatch.chdir(tmp_path)
    App.from_yaml("app.yaml").create_tables()
    engine = create_engine(f"sqlite:///{tmp_path}/page.db")
    Base.metadata.create_all(engine)
    return engine


def in_broker(folder: Path) -> int:
    """Return how many messages the embedded broker has."""
    with create_engine(f"sqlite:///{folder}/broker.db").connect() as connection:
        names = sqlalchemy.inspect(connection).get_table_names()
        (table,) = [name for name in names if name.endswith("messages")]
        return int(connection.exec_driver_sql(f"SELECT count(*) FROM {table}").scalar_one())


def posted(app: FastAPI, path: str, body: Any = None, *, times: int) -> list[httpx.Response]:
    """Return the answers to a request, sent so often with one key, while the application is up."""

    async def send() -> list[httpx.Response]:
        transport = httpx.ASGITransport(app=app)
        async with (
            app.router.lifespan_context(app),
            httpx.AsyncClient(transport=transport, base_url="http://page") as client,
        ):
            key = {"Idempotency-Key": '"k-1"'}
            return [await client.post(path, json=body, headers=key) for _ in range(times)]

    return asyncio.run(send())


@shows("docs/publishing.md", "with publisher:")
def test_a_script_publishes(part: Part, web_service: sqlalchemy.Engine, tmp_path: Path) -> None:
    """What it sends at once, and what it sends with its transaction."""
    part.run(engine=web_service)
    with Session(web_service) as session:
        assert session.scalar(select(func.count(Order.id))) == 1
    assert in_broker(tmp_path) == 4


@shows("docs/publishing.md", "FastAPI(lifespan=publisher.lifespan)")
def test_a_web_service_publishes(part: Part, web_service: sqlalchemy.Engine, tmp_path: Path) -> None:
    """On its event loop, with its own transaction."""
    engine = create_async_engine(f"sqlite+aiosqlite:///{tmp_path}/page.db")

    async def get_session() -> Any:
        async with AsyncSession(engine) as session:
            yield session

    found = part.run(FastAPI=FastAPI, Depends=Depends, AsyncSession=AsyncSession, get_session=get_session)
    (answer,) = posted(found.web, "/orders/7/pay", times=1)
    assert answer.status_code == 200
    with Session(web_service) as session:
        assert session.scalar(select(func.count(Order.id))) == 1
    assert in_broker(tmp_path) == 1


@shows("docs/redis-filters.md", "BloomFilter(")
def test_a_filter_of_another_service_is_read(part: Part, redis_url: str) -> None:
    """It says maybe of what was added."""
    name = f"payments-booked-{uuid4().hex[:8]}"
    made = BloomFilter(redis_url, name)
    made.try_init(expected=1000, false_positives=0.0001)
    made.add_all(["o-1:p-1"])
    try:
        changed = part.text.replace("redis+cluster://localhost:7001", redis_url)
        space: dict[str, Any] = {}
        exec(compile(changed.replace('"payments-booked"', f'"{name}"'), part.page, "exec"), space)
        assert (space["maybe"], space["other"]) == (True, False)
    finally:
        made.delete()


@shows("docs/locks.md", "ReadWriteLock(")
def test_locks_without_a_strategy_are_released(part: Part, redis_url: str) -> None:
    """Each is free at the end, and was held once."""
    found = part.run(("redis://localhost:6379/0", redis_url))
    assert (found.held[0], found.exports.available()) == (1, 3)
    assert not any(lock.locked() for lock in (found.lock, found.prices.read, found.prices.write))


@shows("docs/locks.md", "async def export")
def test_handlers_get_locks(part: Part, redis_url: str) -> None:
    """Both run, and leave nothing locked."""
    mark = uuid4().hex
    found = part.run(('"exports"', f'"exports-{mark}"'))
    app = App("page", brokers={"local": "embedded://"}, database="sqlite://", redis={"url": redis_url})
    for name, handler in (("orders", found.count), ("exports", found.export)):
        app.topic(name, key="body.id", strategies=["none"])
        app.consumer(topic=name, effects="external" if name == "exports" else "database")(handler)
    with TestApp(app) as running:
        assert all(running.publish(name, {"id": "1", "sku": mark}).applied for name in ("orders", "exports"))
    assert ExpirableSemaphore(redis_url, f"exports-{mark}").available() == 3
    assert not Lock(redis_url, f"stock-{mark}").locked()


@shows("docs/requests.md", "def welcome")
def test_a_request_runs_once(part: Part, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its copy gets the stored answer, and so does the copy of a call."""
    monkeypatch.chdir(tmp_path)
    found = part.run()
    found.ledger.create_tables()
    engine = create_engine(f"sqlite:///{tmp_path}/shop.db")
    found.Base.metadata.create_all(engine)
    order = {"account": "ada", "amount": 120}
    answers = posted(found.app, "/payments", order, times=2)
    assert [answer.status_code for answer in answers] == [201, 201]
    assert [found.welcome(found.Order(**order)) for _ in range(2)] == ["welcome", "welcome"]
    with Session(engine) as session:
        amounts = session.scalars(select(found.Payment.amount).order_by(found.Payment.amount))
        assert list(amounts) == [-10, 120]


@shows("docs/requests.md", "def greet")
def test_a_call_without_a_key_runs_and_a_copy_is_told(part: Part, tmp_path: Path) -> None:
    """The hook gives the copy another text."""
    ledger = RequestLedger(f"sqlite:///{tmp_path}/shop.db", "shop")
    ledger.create_tables()
    Base.metadata.create_all(ledger.engine)
    found = part.run(requests=idempotent_requests, ledger=ledger, Order=Event)
    order = Event(user="ada")
    assert [found.greet(order) for _ in range(2)] == ["welcome", "welcome back"]


@shows("docs/requests.md", "async def refund")
def test_a_request_on_the_event_loop_runs_once(part: Part, tmp_path: Path) -> None:
    """The function that does the database work is called in a thread."""
    booked: list[str] = []

    def book(_: Session, order: Event) -> Event:
        booked.append(order.id)
        return order

    url = f"sqlite:///{tmp_path}/shop.db"
    names = {"Order": Event, "Receipt": Event, "book_refund": book, "account_of": lambda _: "ada"}
    found = part.run(("postgresql://localhost/shop", url), **names)
    found.ledger.create_tables()
    answers = posted(found.api, "/refunds", {"id": "A-1"}, times=2)
    assert [(answer.status_code, answer.json()["id"]) for answer in answers] == [(201, "A-1")] * 2
    assert booked == ["A-1"]


@shows("docs/rocketmq.md", "from oncemq_adapters.rocketmq import RocketMQMetadata")
def test_a_handler_reads_where_its_message_was(part: Part, capsys: pytest.CaptureFixture[str]) -> None:
    """Every field that the page prints is there."""
    fields = {name: f"the {name}" for name in RocketMQMetadata.__dataclass_fields__}
    envelope = SimpleNamespace(metadata=lambda kind: kind(**fields))
    part.run().count(Event(), envelope, None)
    assert "the queue_id the queue_offset" in capsys.readouterr().out


@shows("docs/routes.md", "session.execute(delete(Points)")
def test_the_routes_have_handlers_of_their_own(part: Part) -> None:
    """The first gives points, the second takes them back."""
    found, cancelled = part.run(OrderCancelled=Event), {"order_id": "A-1", "type": "cancelled"}
    app = App("shop", brokers={"main": "embedded://"}, database="sqlite:///unused.db")
    app.topic("orders", key="body.order_id", identity="message_id", strategies=["unique_key"])
    routes = app.routes(topic="orders", name="events", by="body.type")
    routes.route("paid")(found.paid)
    routes.route("cancelled")(found.cancelled)
    with TestApp(app, tables=Base.metadata) as test:
        test.publish("orders", {"order_id": "A-1", "type": "paid"})
        assert total(test, Points.points) == 30
        assert test.publish("orders", cancelled).applied
        assert total(test, Points.points) in (None, 0)


@shows("docs/routes.md", 'attempts": 12')
def test_a_route_has_attempts_of_its_own(part: Part) -> None:
    """The page's route is declared as it stands there."""
    app = App("shop", brokers={"main": "embedded://"}, database="sqlite:///unused.db")
    app.topic("orders", key="body.order_id", identity="message_id", strategies=["unique_key"])
    routes = app.routes(topic="orders", name="events", by="headers.event_type")
    part.run(orders=routes, OrderCancelled=Event)
    with TestApp(app, tables=Base.metadata) as test:
        sent = test.publish("orders", {"order_id": "A-1"}, headers={"event_type": "order.cancelled"})
        assert sent.applied


@shows("docs/routes.md", "orders = app.routes")
def test_routes_are_declared_in_python(part: Part) -> None:
    """The page's decorated function is the handler of its value."""
    app = App("shop", brokers={"main": "embedded://"}, database="sqlite:///unused.db")
    app.topic("orders", key="body.order_id", identity="message_id", strategies=["unique_key"])
    part.run(app=app)
    with TestApp(app, tables=Base.metadata) as test:
        test.publish("orders", {"order_id": "A-1"}, headers={"event_type": "order.paid"})
        assert test.publish("orders", {"order_id": "A-1"}, headers={"event_type": "order.sent"}).applied
        assert total(test, Points.points) == 30


@shows("docs/several-topics.md", "topics=[")
def test_one_function_takes_the_messages_of_two_topics(part: Part) -> None:
    """A copy that comes by the other topic gives no points."""
    app = App("shop", brokers={"main": "embedded://"}, database="sqlite:///unused.db")
    for topic in ("orders", "orders_legacy"):
        app.topic(topic, key="body.order_id")
    part.run(app=app)
    with TestApp(app, tables=Base.metadata) as test:
        assert test.publish("orders", {"order_id": "A-1"}).applied
        assert test.publish("orders_legacy", {"order_id": "A-1"}).duplicate
        assert total(test, Points.points) == 30


@shows("docs/schemas.md", "def to_2")
def test_upcasters_make_the_newest_version(part: Part) -> None:
    """One after the other."""
    found = part.run()
    app = App("shop", brokers={"main": "embedded://"}, database="sqlite:///unused.db")
    app.topic("orders", key="body.order_id", strategies=["unique_key"])
    got: list[Any] = []

    @app.consumer(
        topic="orders",
        accepts={"version": "body.v", "versions": [1, 2, 3], "upcasters": {1: found.to_2, 2: found.to_3}},
    )
    def pay(order: dict[str, Any]) -> None:
        got.append(order)

    with TestApp(app) as test:
        assert test.publish("orders", {"order_id": "A-1", "v": 1, "amount": 3}).applied
    assert got == [{"order_id": "A-1", "v": 1, "amount": 3, "cents": 300, "currency": "EUR"}]


@shows("docs/testing.md", "Tests of the points, without a server")
def test_the_test_of_an_example_is_that_of_its_folder(part: Part) -> None:
    """There it is run with the handlers that it tests."""
    assert part.text == (ROOT / "examples/points/test_points.py").read_text()


@shows("docs/testing.md", "publisher.request(")
def test_a_request_is_answered_in_memory(part: Part) -> None:
    """The page's test passes for an app whose consumer answers."""
    app = App("page", brokers={"main": "amqp://shop"}, database="sqlite://")
    app.topic("orders", key="body.order_id", strategies=[{"unique_key": {"result": True}}])

    @app.consumer(topic="orders", effects="database", reply=True)
    def accept(order: dict[str, str]) -> dict[str, str]:
        return {"order_id": order["order_id"], "state": "accepted"}

    with TestApp(app) as test:
        part.run(TestApp=TestApp).test_an_order_is_accepted_once(test)
