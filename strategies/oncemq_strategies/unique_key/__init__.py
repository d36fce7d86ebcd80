"""Strategy `unique_key`."""
