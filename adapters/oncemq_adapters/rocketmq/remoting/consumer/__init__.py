"""Consumer of RocketMQ: group membership, rebalancing, pulling, settlement."""
