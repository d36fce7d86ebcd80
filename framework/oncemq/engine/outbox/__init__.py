"""Outbox: stored messages on their way to their brokers."""
