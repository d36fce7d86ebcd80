"""Claim check: large bodies lie in a store, and messages refer to them."""
