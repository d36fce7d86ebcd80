"""A consumer with a rate in a running app."""

from pathlib import Path
from threading import Event
from time import monotonic
from typing import Any

from oncemq import App, Retry
from oncemq.testing import TestApp


def paying(folder: Path, times: list[float], enough: Event, count: int, **options: Any) -> App:
    """Return an app that notes when each message is handled."""
    app = App("shop", brokers={"main": f"embedded:///{folder}/b.db"}, database=f"sqlite:///{folder}/s.db")
    app.topic("orders", key="body.id", strategies=["unique_key"])

    @app.consumer(topic="orders", name="pay", **options)
    def pay(order: dict[str, Any]) -> None:
        assert order
        times.append(monotonic())
        if len(times) == count:
            enough.set()

    return app


def test_a_consumer_with_a_rate_takes_no_more(tmp_path: Path) -> None:
    """Six at twenty a second, one at a time, take a quarter of a second at least."""
    times, enough = list[float](), Event()
    app = paying(tmp_path, times, enough, 6, rate={"limit": "20/s", "burst": 1})
    app.create_tables()
    app.start()
    try:
        for number in range(6):
            app.publish("orders", {"id": str(number)})
        assert enough.wait(60)
    finally:
        assert app.stop() == 0
    assert times[-1] - times[0] > 0.2


def test_a_retry_is_a_message(tmp_path: Path) -> None:
    """Of a message that fails three tries pass in a burst of three; the fourth waits for its turn."""
    app = paying(tmp_path, [], Event(), 0)
    app.topic("mails", key="body.id", strategies=["unique_key"])
    tried, enough, more = list[str](), Event(), Event()

    @app.consumer(
        topic="mails",
        name="mail",
        rate={"limit": "3/h", "burst": 3},
        retry={"attempts": 9, "backoff": {"first": "1ms"}},
    )
    def mail(order: dict[str, Any]) -> None:
        tried.append(order["id"])
        (enough if len(tried) == 3 else more if len(tried) > 3 else Event()).set()
        raise Retry("once more")

    app.create_tables()
    app.start()
    try:
        app.publish("mails", {"id": "a"})
        assert enough.wait(60)
        assert not more.wait(0.5)
    finally:
        assert app.stop() == 0
    assert tried == ["a"] * 3


def test_other_consumers_and_a_stop_do_not_wait_for_a_rate(tmp_path: Path) -> None:
    """One message an hour here, all of them there, and the end at once."""
    times, enough = list[float](), Event()
    app, slow = paying(tmp_path, times, enough, 50), list[float]()

    @app.consumer(topic="orders", name="mail", rate="1/h", in_flight=50)
    def mail(order: dict[str, Any]) -> None:
        assert order
        slow.append(monotonic())

    app.create_tables()
    app.start()
    try:
        for number in range(50):
            app.publish("orders", {"id": str(number)})
        assert enough.wait(60)
    finally:
        assert app.stop() == 0
    assert len(slow) <= 1


def test_the_test_kit_does_not_wait_for_a_rate(tmp_path: Path) -> None:
    """Tests publish more at once than a partner would take."""
    times, enough = list[float](), Event()
    with TestApp(paying(tmp_path, times, enough, 5, rate="1/h")) as app:
        assert all(app.publish("orders", {"id": str(number)}).applied for number in range(5))
