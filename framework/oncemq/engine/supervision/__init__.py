"""Worker processes as their supervisor sees them, and when one is replaced by a successor."""
