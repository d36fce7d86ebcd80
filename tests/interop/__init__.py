"""Tests with the other side of a protocol: programs of other languages, started for real."""
