"""Sends a mail for each payment, and finds out whether it was sent."""

import smtplib
from email.message import EmailMessage

import mailbox_server
from pydantic import BaseModel

from oncemq import Done, Envelope, NotDone


class OrderPaid(BaseModel):
    """A message's body."""

    order_id: str
    payment_no: int
    email: str
    amount: float


def mail_receipt(order: OrderPaid, envelope: Envelope) -> str:
    """Send the receipt; returns its Message-ID, which is kept with the claim."""
    mail = EmailMessage()
    mail["From"] = "shop@example.org"
    mail["To"] = order.email
    mail["Subject"] = f"Receipt for {order.order_id}, payment {order.payment_no}"
    mail["Message-ID"] = message_id(envelope)
    mail.set_content(f"You paid {order.amount:.2f}. Thank you.\n")
    with smtplib.SMTP("127.0.0.1", mailbox_server.port(), timeout=10) as server:
        server.send_message(mail)
    return message_id(envelope)


def was_sent(envelope: Envelope) -> Done | NotDone:
    """Ask the mail server; called only for mails whose sending was interrupted."""
    sent = any(mail["Message-ID"] == message_id(envelope) for mail in mailbox_server.delivered())
    return Done(message_id(envelope)) if sent else NotDone()


def message_id(envelope: Envelope) -> str:
    """Return the same id for every try to send this mail."""
    return f"<{envelope.identity.replace(':', '-')}@shop.example.org>"
