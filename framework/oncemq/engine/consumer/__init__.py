"""One consumer's shared state: what waits, what may run next, and when it pauses."""
