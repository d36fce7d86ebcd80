"""Remoting protocol of RocketMQ: frames, codes, messages, one connection."""
