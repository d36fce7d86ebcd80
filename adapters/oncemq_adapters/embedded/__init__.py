"""`embedded://`: a durable message broker in one SQLite file, for a single machine, first steps and tests."""

from oncemq_adapters.embedded.adapter import EmbeddedAdapter

__all__ = ["EmbeddedAdapter"]
