"""Producer of RocketMQ: confirmed sends, retry copies, half messages."""
