"""Notes the latest status of each order."""

from sqlalchemy import String
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from oncemq import App


class Base(DeclarativeBase):
    """The tables of this example."""


class Order(Base):
    """An order and its latest status."""

    __tablename__ = "orders"

    order_id: Mapped[str] = mapped_column(String(64), primary_key=True)
    status: Mapped[str] = mapped_column(String(16))


def follow(event: dict[str, str], session: Session) -> None:
    """Note the status."""
    session.merge(Order(order_id=event["order_id"], status=event["status"]))


if __name__ == "__main__":
    Base.metadata.create_all(App.from_yaml().engine())
