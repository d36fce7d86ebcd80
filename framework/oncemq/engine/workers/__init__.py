"""Worker threads and event loops: they take units, run them and settle the result."""
