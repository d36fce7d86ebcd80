"""Database connections of an app: engine, session settings, probes, clock and user tables."""
