"""Limits of how many messages a second a consumer takes."""
