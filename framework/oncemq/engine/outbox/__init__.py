"""Outbox: stored messages and their delivery to brokers."""
