"""Chooses loopback ports that are free, below the range from which the system takes its own."""

import random
import socket

FIRST, LAST = 20_000, 32_000
LOOPBACK = "127.0.0.1"


def is_free(port: int) -> bool:
    """Return whether a server could listen on this loopback port now."""
    with socket.socket() as probe:
        # A server that was just killed leaves connections in TIME_WAIT; servers set this option too.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
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
    candidates = random.SystemRandom().sample(range(FIRST, LAST), 50 * count)
    return [port for port in candidates if is_free(port)][:count]
