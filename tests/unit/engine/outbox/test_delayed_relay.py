"""Messages for later on their way to the broker: in order over several processes, and none lost with one that dies."""

from collections.abc import Callable
from datetime import timedelta
from types import MappingProxyType

import pytest
from sqlalchemy import Engine, delete

from oncemq.contracts.unit import Outgoing
from oncemq.engine.base.hook_points import DELAYED_POINTS, nothing
from oncemq.engine.outbox.confirmed_publisher import Publishing
from oncemq.engine.outbox.relay import Relay
from oncemq.ledger.database.server_clock import substitute_clock
from oncemq.ledger.messages import delayed, outbox
from oncemq.message.envelope import OutgoingMessage
from oncemq.observe.observers import Observers
from oncemq.testing.fake_clock import FakeClock
from oncemq.testing.scripted import ScriptedAdapter
from support.database.databases import database
from support.effects import empty
from support.engine import make_topic

__all__ = ["database"]

WINDOW = timedelta(seconds=20)
WAIT = timedelta(minutes=30)


class Died(BaseException):
    """The process is killed here."""


class Processes:
    """Processes of one app with a clock that moves when told to.

    Args:
        engine: their database.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.clock = FakeClock()
        self.adapter = ScriptedAdapter()
        substitute_clock(engine, self.clock)
        topics = MappingProxyType({"due": make_topic("due")})
        self._publishing = Publishing({"main": self.adapter}, topics, frozenset({"main"}))
        self._publishing.open()

    def start(self, point: Callable[[str], None] = nothing) -> Relay:
        """Return the relay of one more process."""
        relay = Relay("shop", self.engine, self._publishing, self.clock, Observers(()), str, WINDOW, point)
        relay.step()
        return relay

    def publish(self, key: str, count: int) -> None:
        """Store messages that are due one after the other, all of them after half an hour."""
        first = self.clock.now() + WAIT - timedelta(seconds=count)
        messages = [
            OutgoingMessage(b"{}", {}, key, f"{key}{number:03}", due_at=first + timedelta(seconds=number))
            for number in range(count)
        ]
        with self.engine.begin() as connection:
            claim = outbox.Claim("shop", "dead", self.clock.now())
            outgoing = [Outgoing("due", message, None) for message in messages]
            delayed.keep(connection, claim, "shop.points", outgoing, self.clock.now())

    @property
    def sent(self) -> list[str | None]:
        """The ids of what the broker has got, in order."""
        return [published.message.message_id for published in self.adapter.published]


@pytest.fixture
def processes(database: Engine) -> Processes:
    """Each database, with nothing that waits to be sent."""
    empty(database)
    with database.begin() as connection:
        connection.execute(delete(outbox.TABLE))
        connection.execute(delete(delayed.TABLE))
    return Processes(database)


def release(relay: Relay, engine: Engine) -> bool:
    """Have a process look for what is due."""
    return relay.due_task(every=WINDOW).run(engine)


@pytest.mark.parametrize("name", DELAYED_POINTS)
def test_a_process_that_dies_before_it_sends_loses_nothing(processes: Processes, name: str) -> None:
    """What it has given to the outbox is taken over by another process, like every row there."""

    def point(reached: str) -> None:
        if reached == name:
            raise Died

    processes.publish("k", 3)
    processes.clock.advance(WAIT)
    with pytest.raises(Died):
        release(processes.start(point), processes.engine)
    processes.clock.advance(WINDOW)
    other = processes.start()
    other.task(every=WINDOW).run(processes.engine)
    other.step()
    assert processes.sent == ["k000", "k001", "k002"]


def test_two_processes_keep_the_order_of_a_key(processes: Processes) -> None:
    """The second one waits with its part until the first one has sent what was due before."""
    processes.publish("k", 600)
    processes.clock.advance(WAIT)
    first, second = processes.start(), processes.start()
    assert (release(first, processes.engine), release(second, processes.engine)) == (True, False)
    second.step()
    assert processes.sent == []
    first.step()
    processes.clock.advance(WINDOW)
    second.task(every=WINDOW).run(processes.engine)
    while second.step():
        pass
    assert processes.sent == [f"k{number:03}" for number in range(600)]


def test_nothing_is_sent_a_moment_early(processes: Processes) -> None:
    """The last of them is due at the very end."""
    processes.publish("k", 2)
    relay = processes.start()
    processes.clock.advance(WAIT - timedelta(seconds=2, milliseconds=1))
    release(relay, processes.engine)
    assert not relay.step()
    processes.clock.advance(timedelta(milliseconds=1))
    release(relay, processes.engine)
    relay.step()
    assert processes.sent == ["k000"]
