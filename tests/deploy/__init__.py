"""Checks of what the examples deploy."""
