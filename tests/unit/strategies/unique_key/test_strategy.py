"""`unique_key` with a stored result, and by the user's own constraint."""

import json
import re
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from sqlalchemy import (
    Column,
    DateTime,
    Integer,
    MetaData,
    String,
    Table,
    UniqueConstraint,
    func,
    insert,
    select,
)
from sqlalchemy.orm import Session

from oncemq.contracts.unit import Item, Run, Unit
from oncemq.contracts.verdict import Outcome
from oncemq.errors import Reject
from oncemq.ledger.database.engine import make_engine
from oncemq.message.envelope import Delivery, Message
from oncemq.testing.strategy_suite.bench import Bench

MakeBench = Callable[..., Bench]
DEADLINE = 30.0
COLUMNS = {"order_id": "body.id", "payment_no": "body.n"}
OPTIONS = {"table": "payments", "columns": COLUMNS}


def paid(order: Any, number: Any, **more: Any) -> Message:
    """Return a message about one payment of an order."""
    return Message("order.paid", json.dumps({"id": order, "n": number, **more}).encode())


def stored_result(bench: Bench, message: Message) -> Any:
    """Return what a duplicate is given."""
    (strategy,) = bench.strategies
    delivery: Delivery = bench._delivery(message)
    item = Item(delivery, delivery.envelope, delivery.payload)  # type: ignore[arg-type]
    with bench.engine.connect() as connection, connection.begin():
        run = Run(Unit(bench.scope, [delivery], 0), [item], connection)
        strategy.load(run, [item])
        assert strategy.decide(run, item).outcome is Outcome.DUPLICATE
    return item.result


def test_a_duplicate_gets_the_stored_result(make_bench: MakeBench) -> None:
    """What the handler returned is kept with its identity, as JSON."""
    bench = make_bench(
        "unique_key", {"result": True}, handler=lambda body, _session: {"points": 30, "für": body["id"]}
    )
    assert bench.deliver(paid("a", 1)) == [Outcome.PROCEED]
    assert stored_result(bench, paid("a", 1)) == {"points": 30, "für": "a"}


@pytest.mark.parametrize(
    "result", [object(), "x" * 70_000, {"deep": {1: lambda: None}}], ids=["object", "long", "deep"]
)
def test_a_result_that_cannot_be_stored_is_its_items_fault(make_bench: MakeBench, result: Any) -> None:
    """The message is refused with words, its neighbours commit, nothing is left behind."""
    bench = make_bench(
        "unique_key", {"result": True}, handler=lambda body, _: result if body["id"] == "bad" else 1
    )
    bad, good = bench.verdicts(paid("bad", 1), paid("good", 1))
    assert (bad.outcome, good.outcome) == (Outcome.REJECT, Outcome.PROCEED)
    assert "result cannot be stored" in bad.reason
    assert bench.traces() == 1


def test_the_stored_fingerprint_is_of_the_message_that_ran(make_bench: MakeBench) -> None:
    """When the first copy failed, the copy that ran decides what content counts."""

    def handler(body: Any, _session: Session) -> None:
        if body["amount"] == 1:
            raise Reject("the first one")

    bench = make_bench("unique_key", {"fingerprint": ["body.amount"]}, handler=handler)
    assert bench.deliver(paid("a", 1, amount=1), paid("a", 1, amount=2)) == [Outcome.REJECT, Outcome.PROCEED]
    assert bench.deliver(paid("a", 1, amount=2), paid("a", 1, amount=1)) == [
        Outcome.DUPLICATE,
        Outcome.CONFLICT,
    ]


def test_fingerprints_ignore_spelling(make_bench: MakeBench) -> None:
    """10 and 10.0, and the order of an object's fields, are the same content."""
    bench = make_bench("unique_key", {"fingerprint": ["body.amount"]}, handler=lambda _body, _session: None)
    bench.deliver(paid("a", 1, amount={"eur": 10, "cents": 5}))
    assert bench.deliver(paid("a", 1, amount={"cents": 5.0, "eur": 10.0})) == [Outcome.DUPLICATE]
    assert bench.deliver(paid("a", 1, amount={"cents": "5", "eur": 10})) == [Outcome.CONFLICT]


@pytest.fixture
def payments(database_url: str) -> Table:
    """Create the user's table with its constraint over two columns."""
    table = Table(
        "payments",
        MetaData(),
        Column("id", Integer, primary_key=True),
        Column("order_id", String(50), nullable=False),
        Column("payment_no", Integer, nullable=False),
        UniqueConstraint("order_id", "payment_no"),
        mysql_engine="InnoDB",
    )
    engine = make_engine(database_url)
    table.create(engine)
    engine.dispose()
    return table


def book(table: Table) -> Callable[[Any, Session], None]:
    """Return a handler that inserts its payment."""

    def handler(body: Any, session: Session) -> None:
        session.execute(insert(table).values(order_id=str(body["id"]), payment_no=int(body["n"])))

    return handler


def count(bench: Bench, table: Table) -> int:
    """Return how many payments there are."""
    with bench.engine.connect() as connection:
        return connection.execute(select(func.count()).select_from(table)).scalar_one()


def test_the_users_constraint_decides(make_bench: MakeBench, payments: Table) -> None:
    """Copies in one unit and later are duplicates; another payment of the order is not."""
    bench = make_bench("unique_key", OPTIONS, handler=book(payments))
    outcomes = bench.deliver(paid("a", 1), paid("a", 2), paid("a", 1), paid("b", 1))
    assert outcomes == [Outcome.PROCEED, Outcome.PROCEED, Outcome.DUPLICATE, Outcome.PROCEED]
    assert bench.deliver(paid("a", "2"), paid("b", 2)) == [Outcome.DUPLICATE, Outcome.PROCEED]
    assert count(bench, payments) == 4


@pytest.mark.parametrize(("order", "number"), [(None, 1), ("a", None), ("a", "x"), ("a", 1.5), ("a", True)])
def test_values_that_do_not_fit_are_refused(
    make_bench: MakeBench, payments: Table, order: Any, number: Any
) -> None:
    """A NULL would escape the constraint, and no row has a number that is none."""
    message = Message("order.paid", json.dumps({"id": order, "n": number}).encode())
    message = message if order is not None else paid("a", 1)
    options = (
        OPTIONS if order is not None else {**OPTIONS, "columns": {**COLUMNS, "order_id": "body.missing"}}
    )
    bench = make_bench("unique_key", options, handler=book(payments))
    delivery = Delivery(message)
    delivery.envelope, _ = bench._reader.read(paid("a", 1))
    item = Item(delivery, delivery.envelope, json.loads(message.body))
    (strategy,) = bench.strategies
    with bench.engine.connect() as connection, connection.begin():
        run = Run(Unit(bench.scope, [delivery], 0), [item], connection)
        strategy.load(run, [item])
        assert strategy.decide(run, item).outcome is Outcome.REJECT


def test_a_handler_that_inserts_nothing_is_found_out(make_bench: MakeBench, payments: Table) -> None:
    """Without its row nothing would stop the next copy, unless that is what was said."""
    bench = make_bench("unique_key", OPTIONS, handler=lambda _body, _session: None)
    (verdict,) = bench.verdicts(paid("a", 1))
    assert verdict.outcome is Outcome.REJECT
    assert "payments has no row with order_id='a', payment_no=1" in verdict.reason
    lenient = make_bench("unique_key", {**OPTIONS, "required": False}, handler=lambda _body, _session: None)
    assert lenient.deliver(paid("a", 1)) == [Outcome.PROCEED]


def test_a_rival_that_was_faster_makes_a_duplicate(make_bench: MakeBench, payments: Table) -> None:
    """Someone else inserts the row between our look and the handler's insert: it is a duplicate, at no attempt's cost."""
    bench = make_bench("unique_key", OPTIONS)
    looked, inserted = threading.Event(), threading.Event()
    insert_payment = book(payments)

    def handler(body: Any, session: Session) -> None:
        looked.set()
        assert inserted.wait(DEADLINE)
        insert_payment(body, session)

    def rival() -> None:
        assert looked.wait(DEADLINE)
        with bench.engine.begin() as connection:
            connection.execute(insert(payments).values(order_id="a", payment_no=1))
        inserted.set()

    if bench.engine.dialect.name == "sqlite":
        inserted.set()  # one writer at a time: no one can be faster, the rival comes after
        bench.handler = handler
        assert bench.deliver(paid("a", 1)) == [Outcome.PROCEED]
        return
    bench.handler = handler
    with ThreadPoolExecutor(1) as thread:
        racing = thread.submit(rival)
        outcomes = bench.deliver(paid("a", 1))
        racing.result(DEADLINE)
    assert outcomes == [Outcome.DUPLICATE]
    assert count(bench, payments) == 1


@pytest.mark.parametrize(
    ("constraint", "words"),
    [
        (("order_id", "payment_no", "created_at"), "with another created_at would be stored as well"),
        (("order_id",), "name exactly these columns"),
        ((), "has no unique constraint or index over \\(order_id, payment_no\\)"),
    ],
)
def test_unfit_constraints_are_refused_at_start(
    make_bench: MakeBench, database_url: str, facts: Any, constraint: tuple[str, ...], words: str
) -> None:
    """The time belongs to retention, not to identity; and a wish is no constraint."""
    table = Table(
        "payments",
        MetaData(),
        Column("order_id", String(50), nullable=False),
        Column("payment_no", Integer, nullable=False),
        Column("created_at", DateTime, nullable=False),
        *([UniqueConstraint(*constraint)] if constraint else []),
    )
    engine = make_engine(database_url)
    table.create(engine)
    engine.dispose()
    (problem,) = make_bench("unique_key", OPTIONS).strategies[0].check(facts())
    assert re.search(words, str(problem))
