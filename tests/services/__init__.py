"""Starts the real servers that the tests talk to: python -m services start | stop | status."""
