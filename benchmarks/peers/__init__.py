"""The consumers that are compared, each a process of its own."""
