"""Redisson's RSemaphore and RPermitExpirableSemaphore."""
