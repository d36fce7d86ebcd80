"""RocketMQ over its remoting protocol, in pure Python: shares groups with Java members and needs no proxy."""

from oncemq_adapters.rocketmq.metadata import RocketMQMetadata
from oncemq_adapters.rocketmq.remoting.adapter import RocketMQAdapter

__all__ = ["RocketMQAdapter", "RocketMQMetadata"]
