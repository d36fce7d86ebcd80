"""Contracts of adapters and strategies: what they are given and what they answer."""
