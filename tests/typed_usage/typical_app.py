"""Code as users write it, for type checkers: what is right passes, and each line marked `type: ignore` is an error."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta

from sqlalchemy import Engine

from oncemq import (
    App,
    AppDeadLetter,
    AppliedMessage,
    BadItems,
    Batch,
    Done,
    Envelope,
    HandlerCall,
    NotDone,
    Publisher,
    Publishing,
    Reject,
    RequestFailed,
    RequestTimeout,
    Retry,
    Session,
    Unknown,
    Unroutable,
    open_publisher,
)
from oncemq.idempotent_requests import idempotent
from oncemq.ids import Snowflake


@dataclass
class OrderPaid:
    """A message."""

    order_id: str
    user: str
    amount: int


class Measured:
    """A middleware with all hooks."""

    def around(self, call: Callable[[], object], message: HandlerCall) -> object:
        """Run inside of the transaction."""
        message.session.flush()
        return call()

    async def around_async(self, call: Callable[[], Awaitable[object]], message: HandlerCall) -> object:
        """Do the same for coroutines."""
        await message.async_session.flush()
        return await call()

    def after_commit(self, message: AppliedMessage) -> None:
        """Tell what was applied."""
        print(message.envelope.key, message.result)

    def on_publish(self, message: Publishing) -> None:
        """Add a header."""
        message.headers["tenant"] = "a"


app = App(
    "shop",
    brokers={"main": "amqp://localhost:5672/", "rides": {"url": "rocketmq://localhost:9876"}},
    database={"url": "postgresql+psycopg://localhost/shop", "pool_size": 5},
    defaults={"keep": timedelta(days=7)},
    http={"address": "127.0.0.1:9464"},
    middlewares=[Measured],
)
app.topic(
    "order.paid",
    broker="main",
    key="body.order_id",
    identity=["body.order_id", "body.payment_no"],
    schema=OrderPaid,
    exchange="shop",
    routing_key="order.paid",
    unroutable="dead_letter",
    strategies=["unique_key"],
)
app.topic("rides", broker="rides", key="keys[0]", version="body.version", fifo=True, tags=["a", "b"])
app.topic("mine", key="body.id", options={"subject": "mine"})


@app.consumer(
    topic="order.paid",
    group="loyalty",
    retry={"attempts": 5, "backoff": {"first": "1s", "max": timedelta(minutes=10)}},
    limits={"soft": "20s"},
    workers="auto",
    strategies=["unique_key", {"state_machine": {"to": "body.status", "states": ["a", "b"]}}],
)
def award_points(order: OrderPaid, session: Session, envelope: Envelope, publisher: Publisher) -> None:
    """Handle one message."""
    if order.amount < 0:
        raise Reject("a negative amount")
    if envelope.attempt > 3:
        raise Retry("later", after=timedelta(minutes=5))
    session.flush()
    publisher.publish("mine", {"id": order.order_id})


@app.consumer(
    topic="order.paid", name="all-at-once", batch={"limit": 100}, middlewares=["audit:Row", Measured()]
)
def insert_many(orders: Batch[OrderPaid], session: Session) -> None:
    """Handle many messages."""
    for order in orders:
        award: str = order.user
        session.info["user"] = award
    raise BadItems({0: Reject("no"), 1: ValueError("bad")})


events = app.routes(
    topic="rides", name="events", by="headers.type", otherwise="ignore", strategies=["unique_key"], keep="7d"
)


@events.route("ride.paid")
def ride_paid(ride: OrderPaid, session: Session) -> None:
    """Handle one kind of message."""
    session.info["user"] = ride.user


async def was_sent(envelope: Envelope) -> Done | NotDone | Unknown:
    """Answer what became of an effect."""
    return Done() if envelope.key else Unknown("no key")


@app.consumer(topic="order.paid", effects="external", strategies=[{"two_phase": {"verify": was_sent}}])
async def mail(order: OrderPaid) -> None:
    """Handle one message on an event loop."""
    print(order.user)


def call_a_handler() -> None:
    """A decorated function keeps its type."""
    award_points("not an order")  # type: ignore[call-arg, arg-type]


def operate() -> int:
    """Do in Python what the program does."""
    warnings: list[str] = app.check()
    tables: list[str] = app.create_tables()
    engine: Engine = app.engine()
    engine.dispose()
    message_id: str = app.publish("order.paid", {"order_id": "7"}, headers={"tenant": "a"})
    known: Mapping[str, object] = app.inspect("7")
    letters = app.dead_letters.list("award_points", reason="rejected")
    first: AppDeadLetter = letters[0]
    replayed: int = app.dead_letters.replay(ids=[first.id])
    print(warnings, tables, message_id, known, replayed, first.body.decode())
    app.start()
    return app.stop() + app.run(until_idle="5s")


def publish_from_anywhere() -> None:
    """Publish with confirmation."""
    with open_publisher("app.yaml") as publisher:
        try:
            publisher.publish("order.paid", {"order_id": "7"}, key="7")
            print(publisher.request("order.paid", {"order_id": "7"}, wait="5s"))
        except Unroutable as error:
            print(error)
        except (RequestFailed, RequestTimeout) as missing:
            print(missing.topic, missing.message_id)


def ids(numbers: Snowflake) -> int:
    """Ids are numbers."""
    return numbers.next()


__all__ = ["idempotent"]


# What a type checker must find.

app.topic("wrong", queues="many")  # type: ignore[arg-type]
app.topic("wrong", unroutable="perhaps")  # type: ignore[arg-type]
app.topic("wrong", roting_key="order.paid")  # type: ignore[call-arg]
app.consumer(topic="wrong", worker=4)  # type: ignore[call-arg]
app.routes(topic="wrong", name="x", by="body.type", worker=4)  # type: ignore[call-arg]
app.consumer(topic="wrong", effects="outside")  # type: ignore[arg-type]
app.consumer(topic="wrong", retry={"attempt": 5})  # type: ignore[typeddict-unknown-key]
app.run(until_idle=5)  # type: ignore[arg-type]
