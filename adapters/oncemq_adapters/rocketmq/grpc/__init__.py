"""RocketMQ 5 through its gRPC proxy, on the package rocketmq-python-client: every delivery is a lease."""

from oncemq_adapters.rocketmq.packages import require_package

# Before the first import of a module that three packages fight for.
require_package("rocketmq-python-client")

from oncemq_adapters.rocketmq.grpc.adapter import RocketMQGrpcAdapter  # noqa: E402

__all__ = ["RocketMQGrpcAdapter"]
