"""Settlement: what the broker is told about each delivery, after the commit."""
