"""Expressions such as `body.order_id`, `headers.tenant`, `keys[0]`, `message_id`: compiled once, called per message."""

from collections.abc import Callable
from typing import Any

from oncemq.message.envelope import Message

Expression = Callable[[Message, Any], Any]
"""Called with the message and its decoded body; returns the value, or None where there is nothing."""
