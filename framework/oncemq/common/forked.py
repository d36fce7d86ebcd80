"""Keeps what a process alone may hold from the processes that it forks: connections would live as long as the last of them."""

import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar
from weakref import ref

Owner = TypeVar("Owner")


def withhold(owner: Owner, descriptors: Callable[[Owner], Iterable[int]]) -> None:
    """Leave forked processes nothing of these descriptors.

    A child that a handler forks, such as a worker of a process pool, has every connection of its parent. If the parent is killed,
    the server would see none of them end, and keep for the dead process its messages, its queues and the rows that it had locked.

    Args:
        owner: of the descriptors; it is not kept alive by this.
        descriptors: returns those that are open, in the child; it must not wait for a lock, which a thread of the parent may hold.
    """
    os.register_at_fork(after_in_child=partial(_withheld, ref(owner), descriptors))


def _withheld(owner: "ref[Any]", descriptors: Callable[[Any], Iterable[int]]) -> None:
    held = owner()
    if held is None:
        return
    nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    try:
        for descriptor in descriptors(held):
            if descriptor >= 0:
                # Not closed: an object of the child that closes it later would close what has its number by then.
                with suppress(OSError):
                    os.dup2(nothing, descriptor, inheritable=False)
    finally:
        os.close(nothing)
