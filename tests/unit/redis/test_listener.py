"""Subscriptions whose server goes away while they are made, and many of them on one server."""

from contextlib import closing
from threading import Event

import pytest

from oncemq.redis.connect import make_client
from oncemq.redis.listener import Ear, Listener, Subscription
from oncemq.redis.routes import slot_of
from services.waiting import wait_until


class ResponseError(Exception):
    """What clients call an answer that is an error."""


class ClusterDownError(ResponseError):
    """The slot has no master at the moment."""


class Gone:
    """A cluster of which one server is not what it was any more; client and routes in one.

    Args:
        why: what comes of every attempt.
    """

    clustered = True

    def __init__(self, why):
        self._why = why

    @property
    def routes(self):
        """Return itself."""
        return self

    def own(self, _place):
        """Fail."""
        raise self._why


@pytest.fixture
def ear():
    """Return a function that listens to such a server, and is told what it can hear no more."""
    ears = []

    def listen(why, moved):
        ears.append(Ear(Gone(why), "old:1", True, moved))
        return ears[-1]

    yield listen
    for ear in ears:
        ear.stop()


def test_a_subscription_that_comes_after_the_end_is_moved_too(ear):
    """Its channel would never be heard, and every wait for a release would last until the next look."""
    moved, left = [], Event()

    def on_moved(_ear, subscriptions):
        moved.extend(subscriptions)
        left.set()

    gone = ear(ConnectionError("no server listens"), on_moved)
    assert left.wait(20)
    late = Subscription("channel", lambda: None)
    gone.add(late)
    assert moved == [late]


def test_a_cluster_that_is_down_for_a_moment_is_listened_to_again(ear):
    """While a replica takes over, the answer to SSUBSCRIBE is an error that will pass."""
    left = Event()
    ear(ClusterDownError("CLUSTERDOWN Hash slot not served"), lambda *_: left.set())
    assert left.wait(20)


def test_channels_of_several_slots_are_all_heard(redis_cluster_url, fresh):
    """A server takes no channels of several slots in one command: none may silence the others, nor a reconnection."""
    with closing(make_client(redis_cluster_url)) as client:
        listener, routes = Listener(client), client.routes
        names = [f"{fresh}-{number}" for number in range(60)]
        channels = [name for name in names if routes.place(slot_of(name)) == routes.masters()[0]][:8]
        assert len({slot_of(channel) for channel in channels}) > 1
        for channel in channels:
            listener.subscribe(channel, lambda: None)

        def heard(channel):
            return wait_until(lambda: client.command("SPUBLISH", channel, "0", key=channel) == 1, seconds=10)

        assert all(map(heard, channels))
        for ear in listener._ears.values():
            ear._drop()
        assert wait_until(
            lambda: all(ear._connection is not None for ear in listener._ears.values()), seconds=10
        )
        assert all(map(heard, channels))
