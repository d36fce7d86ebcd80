"""RabbitMQ through pika: existing or declared queues, fixed-delay retry queues, dead letters, confirmed publishing."""

from oncemq_adapters.rabbitmq.adapter import RabbitMQAdapter
from oncemq_adapters.rabbitmq.metadata import RabbitMQMetadata

__all__ = ["RabbitMQAdapter", "RabbitMQMetadata"]
