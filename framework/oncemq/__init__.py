"""OnceMQ: consume from message brokers so that every business message takes effect once."""
