"""An app declared in Python is checked and planned like one in YAML."""

import sqlite3
from contextlib import closing, nullcontext
from datetime import timedelta
from pathlib import Path

import pytest

import oncemq
from oncemq import App
from oncemq.errors import ConfigError
from support.declared import CATALOG


def shop(**more) -> App:
    """Return an app with a topic and no consumer."""
    app = App("shop", brokers={"main": "scripted://host"}, database="sqlite://", catalog=CATALOG, **more)
    app.topic("orders", key="body.id", strategies=["decide"], queue="q")
    return app


def handle(order: dict) -> None:
    """Do nothing."""


def test_a_decorated_function_becomes_a_consumer():
    """The function stays itself, and the plan holds it."""
    app = shop()

    @app.consumer(topic="orders", group="g", retry={"attempts": 3}, keep=timedelta(days=1))
    def count(order: dict) -> None: ...

    (plan,) = app.plan().consumers
    assert (plan.name, plan.scope, plan.subscription.group) == ("count", "shop.count", "g")
    assert (plan.retry.attempts, plan.subscription.options) == (3, {"queue": "q"})
    assert plan.handler.name.endswith("count")
    assert count({"id": 1}) is None


def test_defaults_are_inherited():
    """What an app says for all consumers holds for each."""
    app = shop(defaults={"batch": {"limit": 9}})
    app.consumer(topic="orders")(handle)
    assert app.plan().consumers[0].batch_limit == 9


def test_problems_name_the_line_of_the_declaration():
    """A mistake is told at the file and line that made it."""
    app = shop()
    line = test_problems_name_the_line_of_the_declaration.__code__.co_firstlineno + 4
    app.consumer(topic="ordres")(handle)
    with pytest.raises(ConfigError) as caught:
        app.plan()
    assert (
        str(caught.value)
        == f"{Path(__file__)}:{line}: unknown topic 'ordres'; did you mean 'orders'? (known: orders)"
    )


def test_an_unknown_argument_is_refused_with_a_suggestion():
    """The words mean the same as in YAML, and so do the mistakes."""
    app = shop()
    app.consumer(topic="orders", max_workers=3)(handle)
    with pytest.raises(ConfigError, match="there is no 'max_workers' here – write workers: auto"):
        app.check()


def test_a_number_for_concurrency_is_answered_with_workers():
    """Other tools mean the number of workers by it; here it limits the messages of one value."""
    app = shop()
    app.consumer(topic="orders", concurrency=3)(handle)
    with pytest.raises(
        ConfigError, match="should be a mapping – for the number of workers write workers: auto"
    ):
        app.check()


def test_two_consumers_of_one_name_are_refused():
    """The second would silently replace the first."""
    app = shop()
    app.consumer(topic="orders")(handle)
    app.consumer(topic="orders")(handle)
    with pytest.raises(ConfigError, match="consumer 'handle' is declared a second time"):
        app.plan()


def test_check_returns_warnings():
    """What may run but is odd is said."""
    app = shop()
    app.consumer(topic="orders", workers=3, in_flight=1)(handle)
    (warning,) = app.check()
    assert "in_flight: 1 leaves some of 3 workers without a message" in warning


def looking_app(database: Path, table: str) -> App:
    """Return an app whose strategy looks at its table when it is built."""
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("CREATE TABLE stock (sku text primary key, version integer)")
    app = App("shop", brokers={"main": "embedded://"}, database=f"sqlite:///{database}")
    app.topic("orders", key="body.sku", version="body.version")
    entity = {"table": table, "key": "sku", "version": "version"}
    app.consumer(topic="orders", strategies=[{"optimistic_lock": {"entity": entity}}])(handle)
    return app


def open_files(path: Path) -> int:
    """Return how often this process has a file open."""
    found = [Path(path).readlink() for path in Path("/proc/self/fd").iterdir() if Path(path).is_symlink()]
    return found.count(path)


@pytest.mark.parametrize("table", ["stock", "no_such_table"])
def test_checking_leaves_no_connection_open(tmp_path: Path, table: str):
    """Neither an app that may run nor one that is refused keeps a connection that no one can close."""
    app = looking_app(tmp_path / "shop.db", table)
    with nullcontext() if table == "stock" else pytest.raises(ConfigError, match="no_such_table"):
        app.check()
    assert open_files(tmp_path / "shop.db") == 0


@pytest.mark.parametrize("name", oncemq.__all__)
def test_public_names_are_importable(name):
    """Everything that `oncemq` promises is there."""
    assert getattr(oncemq, name).__name__ == name


def test_unknown_public_names_are_attribute_errors():
    """A typing error is Python's own error."""
    with pytest.raises(AttributeError, match="no attribute 'Nope'"):
        _ = oncemq.Nope


def test_a_config_error_may_be_one_plain_text() -> None:
    """A third party writes ConfigError("why") as any exception, and reads it back as one line."""
    error = ConfigError("no such table")
    assert str(error) == "no such table"
    assert error.problems == ("no such table",)
