"""Commands of `oncemq`, one module each; imported when one is called."""
