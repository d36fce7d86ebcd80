"""Operations on an app beside running it, for the program `oncemq` and for `App` alike."""
