"""Counts views of pages, and remembers where each session is."""

import os

from pydantic import BaseModel
from sqlalchemy import String, create_engine, func, select
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from oncemq import Reject


class Base(DeclarativeBase):
    """The tables of this app."""


class View(Base):
    """One view of a page."""

    __tablename__ = "views"

    id: Mapped[int] = mapped_column(primary_key=True)
    page: Mapped[str] = mapped_column(String(200))
    session: Mapped[str] = mapped_column(String(64))


class Click(BaseModel):
    """A message's body: the clicks of a session are numbered."""

    session: str
    number: int
    page: str


def count(click: Click, session: Session) -> None:
    """Count a view; pages of the office are not counted."""
    if click.page.startswith("/admin"):
        raise Reject("pages of the office are not counted")
    session.add(View(page=click.page, session=click.session))


if __name__ == "__main__":
    engine = create_engine(os.environ.get("DATABASE", "sqlite:///clickstream.db"))
    Base.metadata.create_all(engine)
    with Session(engine) as session:
        views = select(View.page, func.count(), func.count(View.session.distinct())).group_by(View.page)
        rows = session.execute(views.order_by(View.page)).all()
    print(
        *(f"{page}: {seen} views in {visits} sessions" for page, seen, visits in rows)
        if rows
        else ["no page was viewed"],
        sep="\n",
    )
