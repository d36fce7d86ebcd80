"""The shop: takes the orders given as `order:user`; one of the user `unknown` fails in the middle of its transaction."""

import sys

from handlers import Order

from oncemq import AppPublisher, open_publisher

TOPIC = "order-paid"


def pay(publisher: AppPublisher, order_id: str, user: str) -> None:
    """Store the order, and publish it if the transaction commits."""
    message = {"order_id": order_id, "payment_no": 1, "user": user}
    with publisher.transaction(TOPIC, message, key=order_id) as session:
        session.add(Order(order_id=order_id, user=user))
        session.flush()
        if user == "unknown":
            raise LookupError("there is no such user")


with open_publisher("app.yaml") as publisher:
    for argument in sys.argv[1:]:
        order_id, user = argument.split(":")
        try:
            pay(publisher, order_id, user)
        except LookupError as error:
            print(f"{order_id} is not paid: {error}")
        else:
            print(f"{order_id} is paid")
