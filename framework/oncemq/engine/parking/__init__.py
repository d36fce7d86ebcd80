"""Parked messages: stored in the ledger until their turn comes."""
