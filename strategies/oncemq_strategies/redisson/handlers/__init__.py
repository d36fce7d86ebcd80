"""Locks and semaphores as parameters of handlers, plain and async."""
