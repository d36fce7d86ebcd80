"""Routes of topics, connections to brokers, membership in groups, and the rules by which members divide queues."""

from oncemq_adapters.rocketmq_client.connections.broker_connections import Brokers
from oncemq_adapters.rocketmq_client.connections.group_membership import GroupMembership
from oncemq_adapters.rocketmq_client.connections.queue_allocation import allocate, spread_of
from oncemq_adapters.rocketmq_client.connections.routes import Route, Routes
from oncemq_adapters.rocketmq_client.connections.timer_thread import TimerThread

__all__ = ["Brokers", "GroupMembership", "Route", "Routes", "TimerThread", "allocate", "spread_of"]
