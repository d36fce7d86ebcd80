"""Changes the balance for each withdrawal whose precondition holds."""

import os

from pydantic import BaseModel
from sqlalchemy import String, create_engine, select, update
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column


class Base(DeclarativeBase):
    """The tables of this app."""


class Account(Base):
    """An account and its balance."""

    __tablename__ = "accounts"

    account_id: Mapped[str] = mapped_column(String(64), primary_key=True)
    balance: Mapped[int]


class Withdrawal(BaseModel):
    """A message's body: the amount, and the balance that the sender saw."""

    account_id: str
    balance_before: int
    amount: int


def withdraw(order: Withdrawal, session: Session) -> None:
    """Take the amount."""
    taken = update(Account).where(Account.account_id == order.account_id)
    session.execute(taken.values(balance=Account.balance - order.amount))


if __name__ == "__main__":
    engine = create_engine(os.environ.get("DATABASE", "sqlite:///bank.db"))
    Base.metadata.create_all(engine)
    with Session(engine) as session:
        if session.get(Account, "ann") is None:
            session.add_all([Account(account_id="ann", balance=500), Account(account_id="bob", balance=80)])
            session.commit()
        for account in session.scalars(select(Account).order_by(Account.account_id)):
            print(f"{account.account_id} has {account.balance}")
