"""RocketMQ on rocketmq-client-python: librocketmq decides what comes here, the remoting code does what it cannot."""

from oncemq_adapters.rocketmq.native.adapter import NativeRocketMQAdapter

__all__ = ["NativeRocketMQAdapter"]
