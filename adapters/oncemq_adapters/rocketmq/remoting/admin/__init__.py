"""Administration of RocketMQ: topics, groups, offsets and broker settings."""
