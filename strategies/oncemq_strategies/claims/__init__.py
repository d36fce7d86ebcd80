"""Strategies for effects outside the database: `two_phase` and `redis_flag`."""
