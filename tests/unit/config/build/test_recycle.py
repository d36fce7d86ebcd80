"""Tests of `recycle:` as it is declared, and where it is refused."""

from datetime import timedelta
from pathlib import Path

import pytest

from oncemq import App
from oncemq.config import load
from oncemq.engine.supervision.recycling import RecycleRule
from oncemq.errors import ConfigError
from support.declared import BASE, loaded, problems

KAFKA = """
app: shop
brokers: {main: {url: "kafka://localhost:9092?member=one"}}
topics:
  orders: {key: body.id, strategies: [none]}
recycle: {every: 24h}
"""


def test_limits_have_units(tmp_path: Path) -> None:
    """Bytes by powers of two or ten, as written."""
    text = BASE + "recycle: {after_messages: 100000, above_memory: 1.5GiB, every: 24h}\n"
    assert loaded(tmp_path, text).plan.recycle == RecycleRule(100_000, 3 << 29, timedelta(days=1))
    assert loaded(tmp_path, BASE + "recycle: {above_memory: 500 MB}\n").plan.recycle == RecycleRule(
        above_memory=500_000_000
    )
    assert loaded(tmp_path, BASE).plan.recycle is None


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("{}", "says no limit – write after_messages:, above_memory: or every:, or leave it out"),
        ("{above_memory: 1024}", "1024 has no unit – write 1024MiB or 1024GiB"),
        ("{above_memory: much}", "'much' is not a size of memory – write 512MiB, 1GiB or 1.5GiB"),
        ("{above_memory: 10KiB}", "is less than any process needs"),
        ("{above_memory: true}", "`above_memory`"),
        ("{after_messages: 0}", "is out of range"),
        ("{after_messages: 1.5}", "should be a whole number"),
        ("{every: 24}", "24 has no unit"),
        ("{every: 500ms}", "a process needs longer to start – write 1s or more, such as 24h"),
        ("{evry: 24h}", "evry"),
    ],
)
def test_what_is_no_limit_is_refused(tmp_path: Path, written: str, said: str) -> None:
    """At its line, with what to write."""
    (problem,) = problems(tmp_path, BASE + f"recycle: {written}\n")
    assert problem.startswith("app.yaml:")
    assert said in problem


def test_static_members_of_kafka_cannot_be_recycled(tmp_path: Path) -> None:
    """Two members with one name cannot run side by side: the broker stops the first when the second comes."""
    file = tmp_path / "app.yaml"
    file.write_text(KAFKA)
    with pytest.raises(ConfigError) as refused:
        load([file], consumers=False)
    assert "both would have the name that member of broker 'main' gives" in str(refused.value)
    file.write_text(KAFKA.replace("?member=one", ""))
    assert load([file], consumers=False).plan.recycle == RecycleRule(every=timedelta(days=1))


def test_a_process_without_supervisor_is_refused_in_words(tmp_path: Path) -> None:
    """Nothing would replace the process of App.run() and App.start()."""
    app = App(
        "shop",
        brokers={"main": f"embedded:///{tmp_path}/broker.db"},
        recycle={"every": "24h"},
        state=tmp_path,
    )
    app.topic("orders", key="body.id", strategies=["none"])

    @app.consumer(topic="orders", effects="external")
    def listen(order: dict) -> None: ...

    for run in (app.run, app.start):
        with pytest.raises(ConfigError, match=r"no supervisor.*oncemq -f module:app run"):
            run()
