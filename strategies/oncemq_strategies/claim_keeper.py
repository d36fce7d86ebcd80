"""Keeps the leases of claims from ending while their handlers run: one thread for a consumer, none while nothing runs."""

import threading
import time
from datetime import timedelta

from sqlalchemy import Engine

from oncemq.clock import Clock
from oncemq.ledger.claims import Claims

_RENEWALS_PER_LEASE = 3
_TRIES_PER_LEASE = 15
"""How often it is tried while the database cannot be reached."""


class ClaimKeeper:
    """Renews what its owners hold.

    A thread starts with the first owner and ends at its next look when none is left, so there is one at most, and
    it is started at most once in a third of a lease.

    Args:
        engine: the app's database.
        claims: of the consumer.
        lease: how long a claim lives without renewal.
        clock: where time comes from.
    """

    def __init__(self, engine: Engine, claims: Claims, lease: timedelta, clock: Clock) -> None:
        self._engine = engine
        self._claims = claims
        self._lease = lease
        self._clock = clock
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
            with self._engine.begin() as connection:
                self._claims.renew(connection, owners, self._clock.now() + self._lease)
        except Exception:
            # The units of these owners meet the same database, and tell of it.
            return False
        finally:
            with self._changed:
                self._renewing = False
                self._changed.notify_all()
        return True
