"""Contracts of adapters and strategies: their inputs and outputs."""
