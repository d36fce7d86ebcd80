"""Which host is tried next, and for how long."""

from oncemq_adapters.rabbitmq.connection.host_order import FIRST_LOOK, REMEMBERED, HostOrder


def test_every_host_gets_a_moment_before_any_gets_its_full_time() -> None:
    """A host that accepts and stays silent costs the next one a moment, not the configured time-out."""
    tries = list(HostOrder(["one", "two"]).tries())
    assert tries == [("one", FIRST_LOOK), ("two", FIRST_LOOK), ("one", None), ("two", None)]


def test_a_single_host_gets_its_full_time_at_once() -> None:
    """There is no other to be kept waiting."""
    assert list(HostOrder(["one"]).tries()) == [("one", None)]


def test_a_host_that_failed_comes_last_for_a_while() -> None:
    """Other connections to the same broker need not find out again; later it gets its place back."""
    now = [0.0]
    order = HostOrder(["one", "two", "three"], lambda: now[0])
    order.failed("one")
    assert [host for host, _ in order.tries()][:3] == ["two", "three", "one"]
    now[0] = REMEMBERED + 1
    assert [host for host, _ in order.tries()][:3] == ["one", "two", "three"]


def test_a_host_that_answers_again_has_its_place_back() -> None:
    """A success forgets the failure."""
    order = HostOrder(["one", "two"])
    order.failed("one")
    order.succeeded("one")
    assert next(order.tries()).host == "one"
