"""Publishing: sends that are confirmed, requests and their replies, and how long a message may be held back."""

from oncemq_adapters.rocketmq_client.producer.delays import DELAY_LEVELS, LONGEST_DELAY, delay_properties
from oncemq_adapters.rocketmq_client.producer.producer import Producer
from oncemq_adapters.rocketmq_client.producer.requests import Reply, Requester

__all__ = ["DELAY_LEVELS", "LONGEST_DELAY", "Producer", "Reply", "Requester", "delay_properties"]
