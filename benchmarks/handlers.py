"""The work that every peer does for a message: one row through the ORM."""

from pydantic import BaseModel
from sqlalchemy import Integer, String
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column


class Base(DeclarativeBase):
    """Tables of the benchmarks."""


class Points(Base):
    """Points for one order; no unique constraint, so that a double effect is counted."""

    __tablename__ = "bench_points"

    id: Mapped[int] = mapped_column(primary_key=True)
    order_id: Mapped[str] = mapped_column(String(64))
    user_id: Mapped[str] = mapped_column(String(64))
    points: Mapped[int] = mapped_column(Integer)


class Processed(Base):
    """The dedup table of the peers, written by hand as their users do."""

    __tablename__ = "bench_processed"

    order_id: Mapped[str] = mapped_column(String(64), primary_key=True)


class OrderPaid(BaseModel):
    """What a message says."""

    order_id: str
    user_id: str
    amount: float
