"""Retries: when a failed message is tried again, and which failures count against the message."""
