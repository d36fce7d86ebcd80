"""Administration: topics, groups, offsets, and what lies in a queue."""

from oncemq_adapters.rocketmq_client.admin.group_start import begin_group
from oncemq_adapters.rocketmq_client.admin.offset_requests import (
    commit_offset,
    committed_offset,
    first_offset,
    last_offset,
    unsettled,
)
from oncemq_adapters.rocketmq_client.admin.queue_browser import browse, browsing_fields, wait_until_shown
from oncemq_adapters.rocketmq_client.admin.topics import (
    connect_all,
    create_group,
    create_topic,
    makes_on_demand,
    wait_for_route,
)

__all__ = [
    "begin_group",
    "browse",
    "browsing_fields",
    "commit_offset",
    "committed_offset",
    "connect_all",
    "create_group",
    "create_topic",
    "first_offset",
    "last_offset",
    "makes_on_demand",
    "unsettled",
    "wait_for_route",
    "wait_until_shown",
]
