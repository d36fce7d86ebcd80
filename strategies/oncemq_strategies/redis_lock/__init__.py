"""Strategy `redis_lock`, with fences for late holders."""
