"""Pages by their addresses."""
