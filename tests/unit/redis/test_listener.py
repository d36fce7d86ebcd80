"""Subscriptions whose server goes away while they are made."""

from threading import Event

from oncemq.redis.listener import Ear, Subscription


class Gone:
    """A cluster of which one server cannot be reached any more; client and routes in one."""

    clustered = True

    @property
    def routes(self):
        """Return itself."""
        return self

    def own(self, _place):
        """Fail."""
        raise ConnectionError("nobody listens")


def test_a_subscription_that_comes_after_the_end_is_moved_too():
    """Its channel would never be heard, and every wait for a release would last until the next look."""
    moved, left = [], Event()

    def on_moved(_ear, subscriptions):
        moved.extend(subscriptions)
        left.set()

    ear = Ear(Gone(), "old:1", True, on_moved)
    assert left.wait(20)
    late = Subscription("channel", lambda: None)
    ear.add(late)
    assert moved == [late]
    ear.stop()
