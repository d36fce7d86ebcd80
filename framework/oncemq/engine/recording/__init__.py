"""Recording of a consumer's traffic while it runs, for `oncemq record`."""
