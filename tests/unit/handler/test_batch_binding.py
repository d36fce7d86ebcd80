"""Batch handlers: what they are given, and how invalid items are named."""

import pytest
from sqlalchemy.orm import Session

from oncemq.contracts.checks import Effects
from oncemq.contracts.verdict import Culprits
from oncemq.handler.batch import Batch
from oncemq.message.envelope import Envelope
from support.benches.binding import BODY, SESSION, Order, Token, bound, item, refusal, run_of


def test_a_batch_handler_is_called_once_for_many() -> None:
    """Its payloads are validated and in order, its envelopes beside them."""

    def handler(session: Session, orders: Batch[Order]):
        return session, [order.id for order in orders], [envelope.key for envelope in orders.envelopes]

    made = bound(handler)
    items = [item({"id": str(number), "paid": 1}) for number in range(3)]
    assert made.is_batch
    assert made.wants_session
    assert made.call_batch is not None
    assert made.call_batch(run_of(*items), items) == (SESSION, ["0", "1", "2"], ["k", "k", "k"])
    assert made.call(run_of(items[0]), items[0]) == (SESSION, ["0"], ["k"])


def test_invalid_items_of_a_batch_are_named_before_the_handler_runs() -> None:
    """Each gets its Reject; the others can run without them."""
    calls = []

    def handler(orders: Batch[Order]):
        calls.append(orders)

    items = [item(BODY), item({"id": 1}), item(BODY), item({})]
    made = bound(handler)
    assert made.call_batch is not None
    with pytest.raises(Culprits) as culprits:
        made.call_batch(run_of(*items), items)
    assert set(culprits.value.verdicts) == {items[1], items[3]}
    assert {verdict.code for verdict in culprits.value.verdicts.values()} == {"invalid"}
    assert not calls


def test_a_batch_without_type_takes_any_body() -> None:
    """`Batch` alone is a batch of decoded bodies."""

    def handler(bodies: Batch):
        return list(bodies)

    made = bound(handler)
    assert made.call(run_of(item(BODY)), item(BODY)) == [BODY]


def test_a_batch_handler_takes_nothing_that_each_message_has() -> None:
    """An envelope or a provided value would be one of many; external effects run one by one."""

    def envelope(orders: Batch[Order], envelope: Envelope): ...

    def token(orders: Batch[Order], token: Token): ...

    def alone(orders: Batch[Order]): ...

    def two(orders: Batch[Order], more: Batch[Order]): ...

    assert "batch.envelopes" in refusal(envelope)
    assert "'token'" in refusal(token)
    assert "effects: database" in refusal(alone, Effects.EXTERNAL)
    assert "payload already" in refusal(two)


def test_a_batch_is_a_sequence() -> None:
    """It has length, positions, slices with their envelopes, and iteration."""
    items = [item(number) for number in range(4)]
    batch = Batch([item.payload for item in items], [item.envelope for item in items])
    assert (len(batch), batch[1], list(batch[2:]), list(batch)) == (4, 1, [2, 3], [0, 1, 2, 3])
    assert list(batch[2:].envelopes) == [items[2].envelope, items[3].envelope]
