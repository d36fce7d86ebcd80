"""Lends the tests of this folder one database of each kind."""

from support.database.databases import database, engine

__all__ = ["database", "engine"]
