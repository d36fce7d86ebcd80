"""Tables and a payload with all that parts of programs on the pages read and write."""

from pydantic import BaseModel
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column


class Base(DeclarativeBase):
    """The tables of the parts."""


class Points(Base):
    """Points of an order."""

    __tablename__ = "points"
    id: Mapped[int] = mapped_column(primary_key=True)
    order_id: Mapped[str]
    user: Mapped[str] = mapped_column(default="")
    points: Mapped[int]


class Payment(Base):
    """A payment."""

    __tablename__ = "payments"
    id: Mapped[int] = mapped_column(primary_key=True)
    order_id: Mapped[str]


class Order(Base):
    """An order."""

    __tablename__ = "orders"
    id: Mapped[str] = mapped_column(primary_key=True)
    state: Mapped[str] = mapped_column(default="")
    user: Mapped[str] = mapped_column(default="")


class Account(Base):
    """An account."""

    __tablename__ = "accounts"
    id: Mapped[str] = mapped_column(primary_key=True)
    balance: Mapped[int]


class User(Base):
    """A user."""

    __tablename__ = "users"
    id: Mapped[str] = mapped_column(primary_key=True)


class Event(BaseModel):
    """A payload with every field that a part reads."""

    id: str = ""
    order_id: str = ""
    user: str = ""
    user_id: str = ""
    account_id: str = ""
    amount: int = 0
