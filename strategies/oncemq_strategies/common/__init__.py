"""Helpers that several strategies share."""
