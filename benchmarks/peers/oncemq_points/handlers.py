"""The OnceMQ peer's handler."""

from sqlalchemy.orm import Session

from benchmarks.handlers import OrderPaid, Points


def award(order: OrderPaid, session: Session) -> None:
    """Give 30 points."""
    session.add(Points(order_id=order.order_id, user_id=order.user_id, points=30))
