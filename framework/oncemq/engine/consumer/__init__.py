"""Shared state of one consumer: waiting messages, scheduling and pauses."""
