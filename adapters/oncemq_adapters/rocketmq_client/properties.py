"""Properties of a message as they stand in requests and in stored messages, and the names that RocketMQ gives a meaning."""

from collections.abc import Mapping

NAME_END, VALUE_END = "\x01", "\x02"
LONGEST_PROPERTIES = 32767
"""Bytes of all properties of a message."""

KEYS, TAGS, UNIQUE_ID = "KEYS", "TAGS", "UNIQ_KEY"
ORIGIN_TOPIC, ORIGIN_ID = "RETRY_TOPIC", "ORIGIN_MESSAGE_ID"
ATTEMPTS, MOST_ATTEMPTS = "RECONSUME_TIME", "MAX_RECONSUME_TIMES"
CORRELATION, REQUESTER, TIME_LEFT = "CORRELATION_ID", "REPLY_TO_CLIENT", "TTL"
DEAD_ORIGIN_TOPIC, DEAD_ORIGIN_ID = "DLQ_ORIGIN_TOPIC", "DLQ_ORIGIN_MESSAGE_ID"


def to_text(properties: Mapping[str, str]) -> str:
    """Return properties as they stand in a request."""
    return "".join([f"{name}{NAME_END}{value}{VALUE_END}" for name, value in properties.items()])


def from_text(text: str) -> dict[str, str]:
    """Return properties as they stand in a message; parts that are none are left out."""
    found = {}
    for part in text.split(VALUE_END):
        name, mark, value = part.partition(NAME_END)
        if mark:
            found[name] = value
    return found
