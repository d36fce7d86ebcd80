"""Builds the parts of a consumer: its handlers and its strategies."""
