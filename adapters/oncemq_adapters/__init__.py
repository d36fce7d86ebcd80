"""The broker adapters shipped with OnceMQ, found through the entry-point group oncemq.adapters."""
