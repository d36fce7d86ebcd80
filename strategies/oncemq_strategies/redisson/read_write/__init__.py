"""Redisson's RReadWriteLock."""
