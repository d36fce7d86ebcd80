"""Keeps the leases of claims from ending while their handlers run: one thread for a consumer, none while nothing runs."""

import threading
import time
from collections.abc import Callable
from datetime import timedelta

from sqlalchemy import Engine

from oncemq.common.clock import Clock
from oncemq.ledger.records.claims import Claims

_RENEWALS_PER_LEASE = 3
_TRIES_PER_LEASE = 15
"""How often it is tried while nothing can be renewed."""


class ClaimKeeper:
    """Renews what its owners hold.

    A thread starts with the first owner and ends at its next look when none is left, so there is one at most, and
    it is started at most once in a third of a lease.

    Args:
        renew: renews everything that these owners hold; an exception means that it may not have.
        lease: how long a claim lives without renewal.
    """

    def __init__(self, renew: Callable[[set[str]], None], lease: timedelta) -> None:
        self._renew_all = renew
        self._lease = lease
        self._owners: set[str] = set()
        self._changed = threading.Condition()
        self._running = False
        self._renewing = False

    def hold(self, owner: str) -> None:
        """Renew what this owner claims from now on."""
        with self._changed:
            self._owners.add(owner)
            if self._running:
                return
            self._running = True
        threading.Thread(target=self._loop, name="oncemq-claims", daemon=True).start()

    def let_go(self, owner: str) -> None:
        """Renew it no more; a renewal that is under way has ended when this returns."""
        with self._changed:
            self._owners.discard(owner)
            self._changed.wait_for(lambda: not self._renewing)

    def _loop(self) -> None:
        pause = self._lease.total_seconds() / _RENEWALS_PER_LEASE
        while True:
            time.sleep(pause)
            with self._changed:
                owners = set(self._owners)
                if not owners:
                    self._running = False
                    return
                self._renewing = True
            share = _RENEWALS_PER_LEASE if self._renew(owners) else _TRIES_PER_LEASE
            pause = self._lease.total_seconds() / share

    def _renew(self, owners: set[str]) -> bool:
        try:
            self._renew_all(owners)
        except Exception:
            # The units of these owners meet the same trouble, and tell of it.
            return False
        finally:
            with self._changed:
                self._renewing = False
                self._changed.notify_all()
        return True


def ledger_keeper(engine: Engine, claims: Claims, lease: timedelta, clock: Clock) -> ClaimKeeper:
    """Return a keeper of claims in the ledger."""

    def renew(owners: set[str]) -> None:
        with engine.begin() as connection:
            claims.renew(connection, owners, clock.now() + lease)

    return ClaimKeeper(renew, lease)
