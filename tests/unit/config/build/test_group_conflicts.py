"""Names that consumers of one app need for themselves, and that happen to be equal."""

from pathlib import Path

import pytest

from oncemq.config import load
from oncemq.errors import ConfigError

HEAD = """
app: shop
brokers: {rabbit: {url: "amqp://guest@127.0.0.1:1/"}}
defaults: {effects: external, strategies: [none]}
"""


def problems(folder: Path, one: tuple[str, str], two: tuple[str, str], options: str = "") -> list[str]:
    """Return what is wrong with two consumers, each given as topic and group."""
    topics = "".join(
        f'  "{topic}": {{key: "keys[0]", {options}}}\n' for topic in dict.fromkeys((one[0], two[0]))
    )
    consumers = "".join(
        f'  {name}: {{topic: "{topic}", group: "{group}", handler: "handlers:handle"}}\n'
        for name, (topic, group) in {"one": one, "two": two}.items()
    )
    (folder / "app.yaml").write_text(f"{HEAD}topics:\n{topics}consumers:\n{consumers}")
    (folder / "handlers.py").write_text("def handle(body: dict) -> None:\n    pass\n")
    try:
        load([folder / "app.yaml"])
    except ConfigError as error:
        return [str(problem).partition(": ")[2] for problem in error.problems]
    return []


@pytest.mark.parametrize(
    ("one", "two", "said"),
    [
        (
            ("orders", "g"),
            ("orders.dead", "g"),
            "the messages of two and the dead letters of one would be in one place, queue g.orders.dead",
        ),
        (
            ("orders", "shop.eu"),
            ("eu.orders", "shop"),
            "the messages of two and the messages of one would be in one place, queue shop.eu.orders",
        ),
        (
            ("orders", "g"),
            ("orders.retry.500", "g"),
            "the messages of two and the retries of one would be in one place, queue g.orders.retry.*",
        ),
    ],
)
def test_queues_that_would_be_shared_are_refused(
    tmp_path: Path, one: tuple[str, str], two: tuple[str, str], said: str
) -> None:
    """On RabbitMQ group and topic make a queue's name, and different ones can make the same."""
    advice = " – write another group:, or another name for the topic"
    found = problems(tmp_path, one, two)
    assert said + advice in found


def test_one_queue_under_two_topics_is_refused(tmp_path: Path) -> None:
    """Two consumers of one existing queue would each get some of its messages, whatever their groups are called."""
    found = problems(tmp_path, ("a", "g"), ("b", "h"), "queue: orders")
    assert "the messages of two and the messages of one would be in one place, queue orders" in found[0]


def test_names_that_only_look_alike_are_fine(tmp_path: Path) -> None:
    """What differs in group and topic lies in queues of its own."""
    assert problems(tmp_path, ("orders", "g"), ("orders", "h")) == []
    assert problems(tmp_path, ("orders", "g"), ("orders.deadline", "g")) == []
