"""Settlement: reporting each delivery's outcome to the broker, after the commit."""
