"""`mode: broadcast` as it is declared: what it needs, what it is refused with, and the scope of an instance."""

from contextlib import closing
from dataclasses import replace
from pathlib import Path
from sqlite3 import connect

import pytest

from oncemq.config import load
from oncemq.errors import ConfigError
from oncemq.testing.scripted import ScriptedAdapter
from support.declared import BASE, loaded, problems

MODE = BASE.replace("topic: orders,", "topic: orders, mode: broadcast,")
NAMED = "instance: web-0\n" + MODE
REAL = """\
app: shop
instance: web-0
brokers: {main: {url: "URL"}}
database: {url: "sqlite:///FOLDER/shop.db"}
topics:
  orders: {key: body.id, version: body.v, identity: [key, body.number], strategies: [STRATEGIES]}
consumers:
  count: {topic: orders, mode: broadcast, handler: "handlers:handle", effects: EFFECTS}
"""


def refused(folder: Path, strategies: str, url: str = "rocketmq://host", effects: str = "database") -> str:
    """Return what loading an app with these says."""
    file = folder / "app.yaml"
    text = REAL.replace("URL", url).replace("STRATEGIES", strategies).replace("EFFECTS", effects)
    with closing(connect(folder / "shop.db")) as database:
        database.executescript(
            "CREATE TABLE IF NOT EXISTS rides (id TEXT PRIMARY KEY, s TEXT, v INTEGER); CREATE TABLE IF NOT EXISTS d (id TEXT PRIMARY KEY);"
        )
    file.write_text(text.replace("FOLDER", str(folder)))
    (folder / "handlers.py").write_text("def handle(order: dict) -> None: ...\n")
    try:
        load([file])
    except ConfigError as error:
        return str(error)
    return ""


def test_an_instance_needs_a_name(tmp_path: Path) -> None:
    """Without one its positions would belong to no one, and members would share the messages unseen."""
    (problem,) = problems(tmp_path, MODE)
    assert "mode: broadcast needs a name of this instance" in str(problem)
    assert "${HOSTNAME}" in str(problem)


@pytest.mark.parametrize("name", ["a b", "a@b", "-a", "a" * 64])
def test_a_name_goes_into_ledger_and_broker(tmp_path: Path, name: str) -> None:
    """So some characters are refused."""
    text = MODE.replace("app: shop", f'app: shop\ninstance: "{name}"')
    assert any("cannot be the name of an instance" in str(each) for each in problems(tmp_path, text))


def test_a_broker_that_cannot_is_refused(tmp_path: Path) -> None:
    """In words, with what to write instead."""
    found = problems(tmp_path, NAMED)
    assert any("mode: broadcast does not work on broker main" in str(each) for each in found)
    assert any("rocketmq://" in str(each) for each in found)


@pytest.mark.parametrize("url", ["rabbitmq", "kafka://host", "rocketmq+grpc://host", "embedded://"])
def test_drivers_whose_members_always_share_are_refused(tmp_path: Path, url: str) -> None:
    """RabbitMQ, Kafka, RocketMQ through a proxy, the embedded broker."""
    found = refused(tmp_path, "unique_key", url.replace("rabbitmq", "amqp://host/"))
    assert "mode: broadcast does not work on broker main" in found or "not installed" in found


def test_the_ledger_keeps_an_instance_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Records, retries and dead letters are under a name of its own; the group is shared."""
    able = replace(ScriptedAdapter.capabilities, broadcast=True)
    monkeypatch.setattr(ScriptedAdapter, "capabilities", able)
    monkeypatch.setattr("support.declared.Decide.traits", replace_traits())
    (plan,) = loaded(tmp_path, NAMED).plan.consumers
    assert (plan.scope, plan.subscription.group) == ("shop.count@web-0", "shop-count")
    assert plan.subscription.broadcast is not None
    assert plan.subscription.broadcast.instance == "web-0"


def replace_traits() -> object:
    """Return traits of a strategy that keeps everything under its consumer."""
    from support.declared import Decide  # noqa: PLC0415 - as it is now

    return replace(Decide.traits, per_consumer=True)


def test_strategies_in_the_ledger_are_taken(tmp_path: Path) -> None:
    """They are kept under the instance."""
    assert refused(tmp_path, "unique_key") == ""
    assert refused(tmp_path, "two_phase", effects="external") == ""
    assert refused(tmp_path, "{state_machine: {to: body.to, states: [a, b]}}") == ""


@pytest.mark.parametrize(
    ("strategy", "why"),
    [
        ("{unique_key: {table: d, columns: {id: body.id}}}", "unique_key decides by d"),
        (
            "{state_machine: {to: body.to, states: [a, b], entity: {table: rides, key: id, state: s}}}",
            "all instances share",
        ),
        (
            "{optimistic_lock: {entity: {table: rides, key: id, version: v}}}",
            "all instances share",
        ),
        ("{unique_key: {also_seen_in: {table: d, columns: {id: body.id}}}}", "another deduplicator"),
        (
            "{precondition: {entity: {table: rides, key: id}, where: {s: body.s}, otherwise: retry}}",
            "precondition decides by what",
        ),
    ],
    ids=["table", "state", "version", "elsewhere", "precondition"],
)
def test_what_instances_share_decides_for_none_of_them(tmp_path: Path, strategy: str, why: str) -> None:
    """The first instance to apply a message would take it from all others: it would be a duplicate for them."""
    found = refused(tmp_path, strategy)
    assert why in found, found


def test_order_by_queues_is_refused(tmp_path: Path) -> None:
    """`fifo` locks queues for one member of the group."""
    text = (
        REAL.replace("STRATEGIES", "unique_key")
        .replace("EFFECTS", "database")
        .replace("URL", "rocketmq://host")
    )
    file = tmp_path / "app.yaml"
    file.write_text(text.replace("key: body.id,", "key: body.id, fifo: true,"))
    with pytest.raises(ConfigError, match="each instance reads all queues"):
        load([file])


def test_positions_need_a_database(tmp_path: Path) -> None:
    """They are kept there."""
    text = NAMED.replace('database: {url: "sqlite://"}\n', "")
    assert any("and there is none" in str(each) for each in problems(tmp_path, text))


def test_one_answer_comes_from_one_instance(tmp_path: Path) -> None:
    """Every instance would answer the same request."""
    found = refused(tmp_path, "{unique_key: {result: true}}", effects="database, reply: true")
    assert "answered once for every instance" in found
