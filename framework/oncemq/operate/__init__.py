"""What people do with an app beside running it, for the program `oncemq` and for `App` alike."""
