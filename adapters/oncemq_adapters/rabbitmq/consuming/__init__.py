"""Consuming from RabbitMQ: subscriptions, channels and acknowledgements."""
