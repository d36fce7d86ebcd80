"""The numbers of RocketMQ's remoting protocol that are used here: requests, answers, flags."""

from typing import Final

TEMPLATE = "TBW102"
"""The topic that brokers have where they make topics on demand."""
Place = tuple[str, int]
"""A broker's name and the number of one of its queues."""
SEND_MESSAGE: Final = 310
SEND_BATCH: Final = 320
PULL_MESSAGE: Final = 11
QUERY_MESSAGE: Final = 12
QUERY_OFFSET: Final = 14
UPDATE_OFFSET: Final = 15
UPDATE_TOPIC: Final = 17
BROKER_CONFIG: Final = 26
BROKER_STATUS: Final = 28
SEARCH_OFFSET: Final = 29
MAX_OFFSET: Final = 30
MIN_OFFSET: Final = 31
HEARTBEAT: Final = 34
UNREGISTER: Final = 35
END_TRANSACTION: Final = 37
CONSUMERS: Final = 38
CHECK_TRANSACTION: Final = 39
CONSUMERS_CHANGED: Final = 40
LOCK_QUEUES: Final = 41
UNLOCK_QUEUES: Final = 42
CHECK_CLIENT: Final = 46
ROUTE: Final = 105
CLUSTER_INFO: Final = 106
ALL_TOPICS: Final = 206
UPDATE_GROUP: Final = 200
ALL_GROUPS: Final = 201
GROUP_MEMBERS: Final = 203
CONSUME_STATS: Final = 208
RESET_OFFSET: Final = 220
SEND_REPLY: Final = 325
"""Of a message that the broker pushes to the client that its properties name."""
PUSH_REPLY: Final = 326
"""A broker's request that brings a reply to the client that asked."""
CONSUMER_STATUS: Final = 221
RUNNING_INFO: Final = 307
CONSUME_DIRECTLY: Final = 309
TOPIC_CONFIG: Final = 351
GROUP_CONFIG: Final = 352
QUERY_ASSIGNMENT: Final = 400

SUCCESS: Final = 0
SYSTEM_BUSY: Final = 2
NOT_SUPPORTED: Final = 3
FLUSH_TIMEOUT: Final = 10
NO_SLAVE: Final = 11
SLAVE_TIMEOUT: Final = 12
ILLEGAL_MESSAGE: Final = 13
SERVICE_NOT_AVAILABLE: Final = 14
NO_PERMISSION: Final = 16
NO_TOPIC: Final = 17
PULL_NOT_FOUND: Final = 19
PULL_AT_ONCE: Final = 20
PULL_OFFSET_MOVED: Final = 21
QUERY_NOT_FOUND: Final = 22
NO_GROUP: Final = 26
FLOW_CONTROL: Final = 215

STORED: Final = frozenset({SUCCESS, FLUSH_TIMEOUT, NO_SLAVE, SLAVE_TIMEOUT})
"""The message is in the log; all but the first say that it is not yet as safe as configured."""

BUSY: Final = frozenset({SYSTEM_BUSY, SERVICE_NOT_AVAILABLE, FLOW_CONTROL})
"""The message is not stored; trying again soon helps."""

PULLED_NOTHING: Final = frozenset({PULL_NOT_FOUND, PULL_AT_ONCE, PULL_OFFSET_MOVED})
"""A pull found no message; its answer says where to go on, and where the queue begins and ends."""

ABOUT_THE_PLACE: Final = frozenset({NOT_SUPPORTED, NO_PERMISSION, NO_TOPIC, NO_GROUP})
"""The message is not stored, and no other one would be in its place."""

ANSWER: Final = 1
ONE_WAY: Final = 2

READABLE: Final = 4
WRITABLE: Final = 2

TIMER_SINCE: Final = 413
"""RocketMQ 5.0.0 in the protocol's own count; older brokers deliver at once what shall wait for a timer."""

OUR_VERSION: Final = 401
"""What we say we are: 4.9.4, the last whose clients need nothing that only 5.x has."""
