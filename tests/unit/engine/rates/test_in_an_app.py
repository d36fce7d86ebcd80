"""A consumer with a rate in a running app."""

from pathlib import Path
from threading import Event
from time import monotonic
from typing import Any

from oncemq import App
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


def test_the_test_kit_does_not_wait_for_a_rate(tmp_path: Path) -> None:
    """Tests publish more at once than a partner would take."""
    times, enough = list[float](), Event()
    with TestApp(paying(tmp_path, times, enough, 5, rate="1/h")) as app:
        assert all(app.publish("orders", {"id": str(number)}).applied for number in range(5))
