"""Strategy `state_machine`."""
