"""Strategy `optimistic_lock`."""
