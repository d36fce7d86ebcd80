"""Publishing to RabbitMQ with confirms: messages, retry copies, dead letters."""
