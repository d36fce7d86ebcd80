"""Names on RocketMQ: of topics and groups, of rules of allocation, of places to begin at."""

from typing import NamedTuple

RETRY_PREFIX = "%RETRY%"
DEAD_PREFIX = "%DLQ%"
AVERAGELY, BY_CIRCLE, CONSISTENT_HASH = "Averagely", "AveragelyByCircle", "ConsistentHash"
ALLOCATIONS = (AVERAGELY, BY_CIRCLE, CONSISTENT_HASH)
"""Rules by which members divide queues: the ends of the names of Java's classes `AllocateMessageQueue…`."""
FIRST, LAST = "first", "last"
LONGEST_TOPIC = 127
LONGEST_GROUP = 255


class Selection(NamedTuple):
    """Which messages of a topic a group subscribes to.

    Args:
        text: an expression that brokers understand.
        kind: its language: tags, or SQL92 over the messages' properties.
    """

    text: str = "*"
    kind: str = "TAG"


def in_namespace(namespace: str, name: str) -> str:
    """Return the name as it is on the broker."""
    return f"{namespace}%{name}" if namespace else name


def retry_topic(group: str) -> str:
    """Return the topic through which a group's retries come, by the group's real name."""
    return RETRY_PREFIX + group


def dead_topic(group: str) -> str:
    """Return the topic in which a group's dead letters lie, by the group's real name."""
    return DEAD_PREFIX + group
