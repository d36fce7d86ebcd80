"""AMQP messages: properties and field tables, as bytes and as values."""
