"""Operations on an app apart from running it, for the program `oncemq` and for `App` alike."""
