"""`oncemq demo`: the promise shown – duplicates, disorder and a killed process, each event counted once."""
