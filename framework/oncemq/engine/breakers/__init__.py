"""Breakers: a consumer that meets a flood of duplicates or failures, or one key above all others, warns, slows down or pauses."""
