"""Handlers of an app that answers requests for a price, for the tests of asking on each broker."""

PRICING = """
from sqlalchemy import text
from sqlalchemy.orm import Session

from oncemq import Reject


def price(order: dict, session: Session) -> dict:
    session.execute(text("INSERT INTO effects (id) VALUES (:id)"), {"id": order["id"]})
    if "reject" in order:
        raise Reject(order["reject"])
    if "fail" in order:
        raise LookupError(order["fail"])
    number = session.scalar(text("SELECT count(*) FROM effects"))
    more = {"text": "x" * order["size"]} if "size" in order else {}
    return {"number": number, "id": order["id"], **more}
"""
"""The answer counts the effects, so that one which is there twice shows; `size` asks for a long one."""
