"""The idempotency strategies shipped with OnceMQ, found through the entry-point group oncemq.strategies."""
