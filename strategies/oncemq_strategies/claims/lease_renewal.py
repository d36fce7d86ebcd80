"""Renews the leases of claims while their handlers run: one thread per consumer, none while nothing runs."""

import threading
import time
from collections.abc import Callable
from datetime import timedelta

from sqlalchemy import Engine

from oncemq.common.clock import Clock
from oncemq.ledger.records.claims import Claims

_RENEWALS_PER_LEASE = 3
_TRIES_PER_LEASE = 15
"""Interval between attempts while renewal fails."""


class ClaimKeeper:
    """Renews the claims of its owners.

    A thread starts with the first owner and exits at its next check when none is left. So there is at most one, and
    it is started at most once per third of a lease.

    Args:
        renew: renews all claims of these owners; an exception means that it may not have.
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
        """Renew the claims of this owner from now on."""
        with self._changed:
            self._owners.add(owner)
            if self._running:
                return
            self._running = True
        threading.Thread(target=self._loop, name="oncemq-claims", daemon=True).start()

    def let_go(self, owner: str) -> None:
        """Stop renewing the claims of this owner; a renewal in progress has ended when this returns."""
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
            # The units of these owners hit the same error, and report it.
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
