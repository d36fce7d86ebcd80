"""The command `oncemq`."""
