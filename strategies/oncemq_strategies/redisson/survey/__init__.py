"""Surveys of what is held in Redis, for operators."""
