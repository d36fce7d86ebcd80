"""OnceMQ: unique_key, the ORM handler for each message."""
