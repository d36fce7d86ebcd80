"""Database connections of an app: engine, first statements, probes, clock and user tables."""
