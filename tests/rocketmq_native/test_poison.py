"""Poisoned messages on this driver; the test is the same on each."""

from poison.on_driver import engine, test_poisoned_messages_end_as_dead_letters_and_harm_no_neighbour

__all__ = ["engine", "test_poisoned_messages_end_as_dead_letters_and_harm_no_neighbour"]
