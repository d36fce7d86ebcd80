"""Handlers that give and then fail, and orders that say how."""

from collections.abc import Callable
from typing import Any

from sqlalchemy import text
from sqlalchemy.orm import Session

from support.effects import give


def failing(one: dict[str, Any], how: str = "raise") -> dict[str, Any]:
    """Return the order, which will fail."""
    return {**one, "fail": how}


def losing_the_connection_at(order_id: str) -> Callable[[dict[str, Any], Session], None]:
    """Return a handler that gives, and has the connection break once, at this order."""
    failed = []

    def handler(order: dict[str, Any], session: Session) -> None:
        give(session, order)
        if order["id"] == order_id and not failed:
            failed.append(order["id"])
            session.flush()
            session.connection().connection.driver_connection.close()  # type: ignore[union-attr]
            session.execute(text("SELECT 1"))

    return handler
