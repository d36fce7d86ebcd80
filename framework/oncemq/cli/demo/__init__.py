"""`oncemq demo`: demonstrates the guarantee – duplicates, disorder and a killed process, each event counted once."""
