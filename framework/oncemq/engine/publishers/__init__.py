"""Publishers outside of handlers: for threads, event loops and transactions of callers."""
