"""Tests of `middlewares:` as they are declared: what is imported, in which order, and what is refused."""

from pathlib import Path
from typing import Any

import pytest

from oncemq import App, Publishing
from oncemq.errors import ConfigError
from support.declared import BASE, CATALOG, HANDLERS, loaded, problems

CLASSES = """
class Good:
    def around(self, call, message): return call()
class Both:
    def around(self, call, message): return call()
    async def around_async(self, call, message): return await call()
class Told:
    def after_commit(self, message): ...
class Async:
    async def around_async(self, call, message): return await call()
class Nothing: ...
class Awaited:
    async def around(self, call, message): return await call()
class AwaitedLater:
    async def after_commit(self, message): ...
class Plain:
    def around_async(self, call, message): return call()
class Yields:
    def around(self, call, message): yield
class Text:
    around = "text"
class Needs:
    def __init__(self, name): ...
    def around(self, call, message): return call()
class Misspelt:
    def around(self, call, message): return call()
    def after_comit(self, message): ...
"""


def declared(middlewares: str, of_app: str = "", handler: str = "handle") -> str:
    """Return an app with these middlewares of its consumer, and of itself."""
    text = BASE.replace("topic: orders,", f"topic: orders, middlewares: {middlewares},")
    text = text.replace("MODULE:handle", f"MODULE:{handler}")
    return text + (f"middlewares: {of_app}\n" if of_app else "")


def said(folder: Path, middlewares: str, of_app: str = "", handler: str = "handle") -> str:
    """Return what loading the app complains about."""
    found = problems(folder, declared(middlewares, of_app, handler), handlers=HANDLERS + CLASSES)
    return "\n".join(found)


@pytest.mark.parametrize(
    ("middlewares", "words"),
    [
        ("['MODULE:God']", "did you mean 'Good'?"),
        ("['no_such_module_here:Tenant']", "there is no module 'no_such_module_here'"),
        ("[Tenant]", "write module:name"),
        ("[3]", "should be text"),
        ("'MODULE:Good'", "should be a list of names"),
        ("['MODULE:Nothing']", "has no hook – define one of around, around_async, after_commit, on_publish"),
        ("['MODULE:Awaited']", "is a coroutine function, which nothing would await – name it around_async"),
        ("['MODULE:AwaitedLater']", "after_commit of middleware MODULE:AwaitedLater is a coroutine function"),
        ("['MODULE:Plain']", "is no coroutine function – write async def around_async"),
        ("['MODULE:Yields']", "is a generator function"),
        ("['MODULE:Text']", "around of middleware MODULE:Text is no method"),
        ("['MODULE:Needs']", "its class is called without arguments"),
        ("['MODULE:Good', 'MODULE:Good']", "middleware MODULE:Good is there twice"),
        (
            "['MODULE:Async']",
            "has around_async, but handler MODULE:handle is a plain function – define around, too",
        ),
    ],
)
def test_a_wrong_middleware_is_refused_in_words(tmp_path: Path, middlewares: str, words: str) -> None:
    """At its place in the file, with what to write."""
    text = said(tmp_path, middlewares)
    assert words in text
    assert text.startswith("app.yaml:7:")


def test_one_for_functions_only_is_refused_around_an_async_handler(tmp_path: Path) -> None:
    """It would be left out without a word."""
    app = declared("['MODULE:Good']", handler="later").replace(
        "topic: orders,", "topic: orders, effects: external,"
    )
    text = "\n".join(problems(tmp_path, app.replace("decide", "direct"), handlers=HANDLERS + CLASSES))
    assert "has around, but handler MODULE:later is async def – define around_async, too" in text


def test_one_of_the_app_is_not_written_again_at_a_consumer(tmp_path: Path) -> None:
    """It would run twice."""
    assert "is there twice" in said(tmp_path, "['MODULE:Good']", "['MODULE:Good']")


def test_a_name_like_a_hook_is_told(tmp_path: Path) -> None:
    """A misspelt hook would never be called."""
    warnings = loaded(tmp_path, declared("['MODULE:Misspelt']"), handlers=HANDLERS + CLASSES).warnings
    (warning,) = [str(each) for each in warnings if "Misspelt" in str(each)]
    assert "has 'after_comit', which is never called" in warning
    assert "did you mean 'after_commit'?" in warning


def test_a_wrong_middleware_of_the_app_is_reported_once(tmp_path: Path) -> None:
    """At its own place, not at each consumer."""
    text = said(tmp_path, "[]", "['MODULE:Nothing']")
    assert text.startswith("app.yaml:8:")
    assert len(text.splitlines()) == 1


def test_without_middlewares_a_handler_is_called_as_before(tmp_path: Path) -> None:
    """Nothing is around its call, and the chain has no further step."""
    plain = loaded(tmp_path, BASE).plan.consumers[0]
    told = loaded(tmp_path, declared("['MODULE:Told']"), handlers=HANDLERS + CLASSES).plan.consumers[0]
    assert told.handler.call.__qualname__ == plain.handler.call.__qualname__
    assert [strategy.name for strategy in plain.strategies] == ["decide"]
    assert [strategy.name for strategy in told.strategies] == ["decide", "middlewares"]


class Counted:
    """Counts its instances."""

    made = 0

    def __init__(self) -> None:
        Counted.made += 1

    def after_commit(self, message: Any) -> None:
        """Do nothing."""


def test_a_class_of_the_app_is_made_once() -> None:
    """All consumers share it."""
    app = App(
        "shop",
        brokers={"main": "scripted://host"},
        database="sqlite://",
        catalog=CATALOG,
        middlewares=[Counted],
    )
    app.topic("orders", key="body.id", strategies=["decide"])
    for name in ("one", "two"):
        app.consumer(topic="orders", name=name)(_handle)
    Counted.made = 0
    app.check()
    assert Counted.made == 1


def _handle(order: dict[str, Any]) -> None:
    """Do nothing."""


def test_an_object_without_hooks_is_refused_in_python() -> None:
    """Names of classes are not the only mistakes."""
    app = App("shop", brokers={"main": "scripted://host"}, catalog=CATALOG, middlewares=[object()])
    with pytest.raises(ConfigError, match="middleware builtins:object has no hook"):
        app.check()


class Stamps:
    """Adds a header."""

    def on_publish(self, message: Publishing) -> None:
        """Name the topic."""
        message.headers["stamped"] = message.topic


def test_publishers_outside_of_handlers_are_asked_too() -> None:
    """`App.publish` and `open_publisher` load the app without its consumers."""
    app = App("shop", brokers={"main": "scripted://host"}, catalog=CATALOG, middlewares=[Stamps])
    app.topic("orders", key="body.id")
    message = app.load(consumers=False).plan.topics["orders"].message({"id": "a"}, headers={"own": "1"})
    assert (message.headers["stamped"], message.headers["own"]) == ("orders", "1")
