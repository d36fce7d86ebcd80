"""Strategy `tiered` and its tiers before the database."""
