"""Strategy `sequence`."""
