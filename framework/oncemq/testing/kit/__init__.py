"""Parts of the test kit for handlers; its public names are in `oncemq.testing`."""
