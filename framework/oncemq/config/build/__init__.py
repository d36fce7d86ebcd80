"""Builds the plan that the engine runs from a valid configuration."""
