"""Side-by-side measurements: every peer in the same run, on the same servers, its effects checked."""
