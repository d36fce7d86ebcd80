"""Hostile producers and their neighbours, on every broker."""
