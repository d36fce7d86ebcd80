"""Reads the article's row for each order, and writes it with one less."""

import os
import sys
import time

from pydantic import BaseModel
from sqlalchemy import Float, String, create_engine, func, select
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from oncemq import Reject


class Base(DeclarativeBase):
    """The tables of this app."""


class Article(Base):
    """The stock of an article. A handler that writes after the version has changed runs again."""

    __tablename__ = "articles"

    article: Mapped[str] = mapped_column(String(64), primary_key=True)
    left: Mapped[int]
    version: Mapped[int] = mapped_column()

    __mapper_args__ = {"version_id_col": version}  # noqa: RUF012 - SQLAlchemy's way to say it


class LockedArticle(Base):
    """The stock of an article, whose row is locked before the handler runs."""

    __tablename__ = "locked_articles"

    article: Mapped[str] = mapped_column(String(64), primary_key=True)
    left: Mapped[int]


class Sale(Base):
    """One order that got its article."""

    __tablename__ = "sales"

    id: Mapped[int] = mapped_column(primary_key=True)
    way: Mapped[str] = mapped_column(String(20))
    order_id: Mapped[int]
    at: Mapped[float] = mapped_column(Float(53))


class Order(BaseModel):
    """A message's body."""

    order_id: int
    article: str


def take_optimistic(order: Order, session: Session) -> None:
    """Read, then write: a concurrent write is detected at the end, and this handler runs again."""
    article = session.get_one(Article, order.article)
    take("optimistic", order, article, session)


def take_pessimistic(order: Order, article: LockedArticle, session: Session) -> None:
    """Write the locked row: other transactions wait."""
    take("pessimistic", order, article, session)


def take(way: str, order: Order, article: Article | LockedArticle, session: Session) -> None:
    """Take one article, if any is left."""
    if article.left == 0:
        raise Reject("sold out")
    article.left -= 1
    session.add(Sale(way=way, order_id=order.order_id, at=time.time()))


def report(session: Session) -> None:
    """Print the sales of each way, and their speed."""
    for way, table in (("optimistic", Article), ("pessimistic", LockedArticle)):
        sold, orders, first, last = session.execute(
            select(
                func.count(), func.count(Sale.order_id.distinct()), func.min(Sale.at), func.max(Sale.at)
            ).where(Sale.way == way)
        ).one()
        left = session.scalar(select(func.sum(table.left)))
        speed = f", {sold / max(last - first, 0.001):,.0f} a second" if sold else ""
        print(f"{way}: {sold} sold to {orders} orders, {left} left{speed}")


if __name__ == "__main__":
    engine = create_engine(os.environ.get("DATABASE", "sqlite:///stock.db"))
    Base.metadata.create_all(engine)
    with Session(engine) as session:
        if session.get(Article, "a-0") is None:
            session.add_all(Article(article=f"a-{number}", left=100, version=1) for number in range(4))
            session.add_all(LockedArticle(article=f"a-{number}", left=100) for number in range(4))
            session.commit()
        if sys.argv[1:] == ["orders"]:
            for number in range(450):  # every tenth comes twice
                copies = 2 if number % 10 == 0 else 1
                print(f'{{"order_id": {number}, "article": "a-{number % 3}"}}\n' * copies, end="")
        else:
            report(session)
