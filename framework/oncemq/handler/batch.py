"""Batch of messages for one handler call: several payloads in arrival order, with their envelopes."""

from collections.abc import Sequence
from typing import Generic, TypeVar, overload

from oncemq.message.envelope import Envelope

P = TypeVar("P")


class Batch(Sequence[P], Generic[P]):
    """The payloads of one unit, in arrival order: `def save(orders: Batch[OrderPaid], session: Session)`.

    Attributes:
        payloads: each message's payload, validated.
        envelopes: each message's envelope, in the same order.
    """

    __slots__ = ("envelopes", "payloads")

    def __init__(self, payloads: Sequence[P], envelopes: Sequence[Envelope]) -> None:
        self.payloads = payloads
        self.envelopes = envelopes

    @overload
    def __getitem__(self, index: int) -> P: ...
    @overload
    def __getitem__(self, index: slice) -> "Batch[P]": ...
    def __getitem__(self, index: int | slice) -> "P | Batch[P]":
        if isinstance(index, slice):
            return Batch(self.payloads[index], self.envelopes[index])
        return self.payloads[index]

    def __len__(self) -> int:
        return len(self.payloads)

    def __repr__(self) -> str:
        return f"<Batch of {len(self.payloads)}>"
