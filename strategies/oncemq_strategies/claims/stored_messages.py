"""Stores messages published by handlers and `verify` together with the end of their claim."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from sqlalchemy import Connection

from oncemq.common.clock import Clock
from oncemq.common.problems import Problem
from oncemq.contracts.checks import ConsumerFacts
from oncemq.contracts.strategy import Scope
from oncemq.contracts.unit import Outgoing, Run
from oncemq.ledger.messages import delayed
from oncemq.ledger.messages.outbox import Claim
from oncemq_strategies.claims.verify import Asker


class OfHandler:
    """Messages published by one handler: stored with the end of its claim, and sent right after.

    Args:
        run: the message's own run; its handler has returned.
    """

    def __init__(self, run: Run) -> None:
        self._run = run
        self._stored: Any = None
        self.committed = False
        """Set if they are stored in a transaction of their own, before the claim ends."""

    def store(self, connection: Connection) -> None:
        """Store them; may be repeated in another transaction when this one was rolled back."""
        if self._run.outbox is not None:
            self._stored = self._run.outbox.keep(connection, self._run)

    def send(self) -> None:
        """Send the stored messages; the end of the claim is durable."""
        if self._run.outbox is not None and self._stored:
            self._run.outbox.send(self._stored)


class OfVerify:
    """Messages that `verify` published before it returned Done: stored with the claim's end, sent by the relay.

    Args:
        scope: of the consumer.
        published: in order.
    """

    def __init__(self, scope: Scope, published: Sequence[Outgoing]) -> None:
        self._app, self._consumer = scope.app, scope.consumer
        self._clock: Clock = scope.clock
        self._published = published
        self.committed = False

    def store(self, connection: Connection) -> None:
        """Store them as due messages that any process of the app may send."""
        now = self._clock.now()
        delayed.keep(connection, Claim(self._app, "", now), self._consumer, self._published, now)


Messages = OfHandler | OfVerify
"""Messages that are stored with the end of one claim."""


class Finish(NamedTuple):
    """An effect that has happened.

    Args:
        identity: of the message.
        owner: the token of its claim.
        result: what the handler returned, as JSON.
        fingerprint: of the content, if it is compared.
        messages: published by the handler or `verify`.
    """

    identity: str
    owner: str
    result: str | None = None
    fingerprint: str | None = None
    messages: Messages | None = None


class Doubt(NamedTuple):
    """An effect that may have happened.

    Args:
        identity: of the message.
        owner: the token of its claim.
        reason: why it is not known.
        fingerprint: of the content, if it is compared.
    """

    identity: str
    owner: str
    reason: str
    fingerprint: str | None = None


def check_messages(name: str, asker: Asker, facts: ConsumerFacts) -> Iterable[Problem]:
    """Yield why published messages could be lost between the handler's effect and the end of its claim."""
    if not facts.publishes:
        return
    if not facts.dialect:
        yield Problem(
            f"the handler asks for a Publisher, but {name} has no database here: a process that dies between the "
            "handler's effect and the sending would lose the messages",
            "give the app a `database`, where messages are stored before the claim is done; or publish elsewhere",
            "handler",
        )
    if asker.can_ask and not asker.can_publish:
        yield Problem(
            "the handler publishes, and `verify` does not: when a process dies after the effect, `verify` says Done, "
            "the handler does not run again, and its messages are never sent",
            "let `verify` ask for a publisher as the handler does – def verify(envelope: Envelope, publisher: "
            "Publisher) – and publish the same messages before it returns Done",
            "strategies",
        )
