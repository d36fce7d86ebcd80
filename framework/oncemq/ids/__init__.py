"""Ids that are unique over all processes, without asking a server for each."""

from oncemq.ids.snowflake import Parts, Snowflake

__all__ = ["Parts", "Snowflake"]
