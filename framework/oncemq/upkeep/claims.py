"""Deletes bodies of the claim check whose time is over."""

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from typing import Final

from sqlalchemy import Engine, func, select

from oncemq.contracts.strategy import UpkeepTask
from oncemq.ledger.messages import outbox, parking
from oncemq.message.claims.claim_check import ClaimCheck, expired

EVERY: Final = timedelta(minutes=10)


class BodyPurge:
    """Deletes the folders of days that are over, one a step.

    Bodies of messages that still wait in the app's ledger, however long, are kept.

    Args:
        claims: where the bodies lie.
        app: the app's name.
        scopes: ledger scopes of its consumers.
        engines: every shard of the app's database.
    """

    def __init__(
        self, claims: ClaimCheck, app: str, scopes: Collection[str], engines: Sequence[Engine]
    ) -> None:
        self._claims = claims
        self._app = app
        self._scopes = sorted(scopes)
        self._engines = engines

    def __call__(self, _engine: Engine) -> bool:
        """Run one step; returns whether there is more."""
        now = min([self._claims.clock.now(), *map(self._oldest, self._engines)])
        over = sorted(folder for folder in self._claims.store.folders() if expired(folder, now))
        if over:
            self._claims.store.delete(over[0])
        return len(over) > 1

    def _oldest(self, engine: Engine) -> datetime:
        """Return since when a message waits in a database; now, if none does."""
        waits = (
            select(func.min(outbox.TABLE.c.created_at)).where(outbox.TABLE.c.app == self._app),
            select(func.min(parking.TABLE.c.parked_at)).where(parking.TABLE.c.consumer.in_(self._scopes)),
        )
        with engine.connect() as connection:
            found: list[datetime | None] = [connection.execute(each).scalar_one() for each in waits]
        return min([self._claims.clock.now(), *(each for each in found if each is not None)])


def body_purges(
    claims: Sequence[ClaimCheck], app: str, scopes: Collection[str], engines: Sequence[Engine]
) -> list[UpkeepTask]:
    """Return a task for each store of an app's topics."""
    stores = {each.store.url: each for each in claims}
    return [
        UpkeepTask(f"purge bodies {app} {number}", EVERY, BodyPurge(each, app, scopes, engines))
        for number, (_, each) in enumerate(sorted(stores.items()))
    ]
