"""Stores an entry for each leg of a transfer, and changes the account's balance."""

import os

from pydantic import BaseModel
from sqlalchemy import String, UniqueConstraint, create_engine, select, update
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column


class Base(DeclarativeBase):
    """The tables of this app."""


class Account(Base):
    """An account and its balance, in cents."""

    __tablename__ = "accounts"

    account_id: Mapped[str] = mapped_column(String(64), primary_key=True)
    balance: Mapped[int]


class Entry(Base):
    """One leg of a transfer; a transfer has at most one on each account."""

    __tablename__ = "entries"
    __table_args__ = (UniqueConstraint("transfer_id", "account_id"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    transfer_id: Mapped[str] = mapped_column(String(64))
    account_id: Mapped[str] = mapped_column(String(64))
    amount: Mapped[int]


class Leg(BaseModel):
    """What a message says."""

    transfer_id: str
    account_id: str
    amount: int


def book(leg: Leg, session: Session) -> None:
    """Write the entry and move the balance, in one transaction."""
    session.add(Entry(transfer_id=leg.transfer_id, account_id=leg.account_id, amount=leg.amount))
    moved = update(Account).where(Account.account_id == leg.account_id)
    session.execute(moved.values(balance=Account.balance + leg.amount))


if __name__ == "__main__":
    engine = create_engine(os.environ.get("DATABASE", "sqlite:///bank.db"))
    Base.metadata.create_all(engine)
    with Session(engine) as session:
        if session.get(Account, "ann") is None:
            session.add_all([Account(account_id="ann", balance=1000), Account(account_id="bob", balance=0)])
            session.commit()
        for account in session.scalars(select(Account).order_by(Account.account_id)):
            print(f"{account.account_id} has {account.balance}")
