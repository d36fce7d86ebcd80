"""Publishing: sends that are confirmed, and how long a message may be held back."""

from oncemq_adapters.rocketmq_client.producer.delays import DELAY_LEVELS, LONGEST_DELAY, delay_properties
from oncemq_adapters.rocketmq_client.producer.producer import Producer

__all__ = ["DELAY_LEVELS", "LONGEST_DELAY", "Producer", "delay_properties"]
