"""Reload of a running app: its files are checked in a process of their own, compared, and taken over by new worker processes."""
