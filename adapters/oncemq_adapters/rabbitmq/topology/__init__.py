"""Queues and exchanges of a consumer group: names, declarations, checks."""
