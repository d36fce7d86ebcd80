"""Ids that are unique across all processes, without asking a server for each."""

from oncemq.ids.snowflake import Parts, Snowflake

__all__ = ["Parts", "Snowflake"]
