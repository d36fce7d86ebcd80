"""Retries: when a failed message is tried again, and which failures are the message's own."""
