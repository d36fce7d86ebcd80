"""Kafka through confluent-kafka: settles per message, retries by time, dead letters; needs `oncemq[kafka]`."""

from oncemq_adapters.kafka.adapter import KafkaAdapter

__all__ = ["KafkaAdapter"]
