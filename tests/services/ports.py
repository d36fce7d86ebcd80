"""Chooses loopback ports that are free, below the range from which the system takes its own."""

import itertools
import random
import socket

FIRST, LAST = 20_000, 32_000
STEP = 4
"""Between two chosen ports: a RocketMQ broker also listens two below the one that it was told."""
LOOPBACK = "127.0.0.1"


def is_free(port: int) -> bool:
    """Return whether a server could listen on this port now, on loopback or on every address."""
    with socket.socket() as probe:
        # A server that was just killed leaves connections in TIME_WAIT; servers set this option too.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True


def accepts(port: int) -> bool:
    """Return whether something accepts connections on this loopback port."""
    try:
        socket.create_connection((LOOPBACK, port), timeout=1).close()
    except OSError:
        return False
    return True


def choose(count: int) -> list[int]:
    """Return different free ports, at random so that checkouts on one machine rarely meet."""
    candidates = range(FIRST, LAST, STEP)
    mixed = random.SystemRandom().sample(candidates, len(candidates))
    return list(itertools.islice((port for port in mixed if is_free(port) and is_free(port - 2)), count))
