"""Registers versions of payload schemas, and judges whether they are compatible."""
