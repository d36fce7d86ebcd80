"""Reads configuration files: from bytes to one tree that knows where each value was written."""
