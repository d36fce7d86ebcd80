"""Connections to RabbitMQ: addresses, host order, errors and the I/O thread."""
