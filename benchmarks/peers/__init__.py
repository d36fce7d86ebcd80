"""The consumers that are compared, each a process of its own, written as their users would write them."""
