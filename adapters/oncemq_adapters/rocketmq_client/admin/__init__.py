"""Administration: topics, groups, offsets, and what lies in a queue."""
