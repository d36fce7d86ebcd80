"""Crash detection: flight recorders, process locks, suspects and time limits."""
