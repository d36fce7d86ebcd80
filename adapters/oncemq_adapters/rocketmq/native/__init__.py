"""RocketMQ on rocketmq-client-python: librocketmq decides which messages we get, the remoting code does everything else."""

from oncemq_adapters.rocketmq.native.adapter import NativeRocketMQAdapter

__all__ = ["NativeRocketMQAdapter"]
