"""Messages as values: as read by an adapter, as understood by the app, and with bodies decoded to payloads."""
