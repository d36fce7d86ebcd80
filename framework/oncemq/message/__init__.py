"""Messages as values: what an adapter read, what it means to the business, and how bytes become payloads."""
