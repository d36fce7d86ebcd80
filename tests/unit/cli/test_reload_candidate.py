"""Which changes of a configuration may be taken over by a reload, and which need a stop."""

from pathlib import Path

import pytest

from oncemq.cli.reload.candidate import Candidate, check, running
from oncemq.config import load, pinned

APP = """
app: shop
brokers: {local: {url: "embedded:///broker.db"}}
database: {url: "sqlite:///shop.db"}
topics:
  order.paid: {key: body.order, version: body.n, strategies: [unique_key]}
consumers:
  award: {topic: order.paid, handler: "handlers:award", in_flight: 10}
"""

_SECTIONS = """
tracing: {sample: 0.5, keys: true}
logging: {level: info}
http: {address: "127.0.0.1:0"}
grace: 20s
processes: 2
recycle: {after_messages: 1000}
defaults:
  in_flight: 50
  breakers: {duplicates: 0.5, hot_key: {above: 0.3, action: pause}}
  retry: {never: [ValueError], attempts: 4, backoff: {first: 1s}}
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An app's file; its handler is called by no test."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "handlers.py").write_text(
        "from sqlalchemy.orm import Session\n\ndef award(order: dict, session: Session) -> None: ...\n"
    )
    file = tmp_path / "app.yaml"
    file.write_text(APP)
    return file


def _with(file: Path, old: str, new: str) -> Candidate:
    text = file.read_text()
    assert old in text
    return running(load([file], texts={file: text.replace(old, new).encode()}))


def test_what_decides_about_duplicates_and_order_needs_a_stop(file: Path) -> None:
    """Old and new processes would not find each other's records."""
    old = running(load([file]))
    for before, after, place in (
        ("unique_key", "sequence", "consumers.award: strategies"),
        ("key: body.order", "key: body.id", "consumers.award: key"),
        ("shop.db", "other.db", "database"),
        ("app: shop", "app: shops", "app"),
    ):
        found = _with(file, before, after).obstacles(old)
        assert any(line.startswith(f"{place} cannot change while") for line in found), (place, found)


def test_a_consumer_that_takes_over_a_running_ones_records_needs_a_stop(file: Path) -> None:
    """The running one would go on to write records under the name that has been given up."""
    new = _with(file, "award: {topic", "points: {formerly: award, topic")
    [line] = new.obstacles(running(load([file])))
    assert line.startswith("consumers.points takes over the records of award, which still runs")


def test_other_changes_are_named_and_taken_over(file: Path) -> None:
    """The log of a reload says which sections and consumers changed."""
    old = running(load([file]))
    new = _with(file, "in_flight: 10", "in_flight: 10, rate: 5/s")
    assert (new.obstacles(old), new.changed_from(old)) == ([], ["consumers.award"])


def test_the_same_text_is_the_same_configuration_in_every_process(file: Path) -> None:
    """Whatever sections it has, also those with a field of a name that mappings have (`keys`)."""
    with file.open("a") as more:
        more.write(_SECTIONS)
    old = running(load([file]))
    assert running(load([file])).changed_from(old) == []
    found = check([file], pinned([file]))
    assert (found.changed_from(old), found.obstacles(old)) == ([], [])
    assert _with(file, "sample: 0.5", "sample: 0.6").changed_from(old) == ["tracing"]


def test_a_check_that_does_not_end_refuses(file: Path) -> None:
    """An import may wait for ever."""
    (file.parent / "handlers.py").write_text("import threading\nthreading.Event().wait()\n")
    assert check([file], pinned([file]), within=1.0).problems == ("the check has not ended within 1 s",)


def test_texts_that_were_pinned_are_loaded_whatever_the_file_says(file: Path) -> None:
    """Every process of a reload runs the text that was checked."""
    texts = pinned([file])
    file.write_text("app: [")
    assert load([file], texts=texts).plan.name == "shop"
