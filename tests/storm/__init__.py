"""Attacks on the running framework, and the oracle that says afterwards what became of every message."""
