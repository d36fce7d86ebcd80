"""Names to implementations."""

import pytest

from oncemq import registry
from oncemq.config.build.catalog import Catalog
from oncemq.errors import MissingExtra, UnknownName
from oncemq.registry import Registry, did_you_mean


class Colour:
    """Anything that can be registered."""


class Point:
    """An entry point whose package needs another one that is not installed."""

    def __init__(self, name: str, module: str) -> None:
        self.name = name
        self.module = module

    def load(self):
        """Fail as an import does."""
        raise ModuleNotFoundError(f"No module named {self.module!r}", name=self.module)


def test_a_registered_class_is_found_by_its_name() -> None:
    """get() returns what was given as extra."""
    assert Registry("nothing.here", "colour", {"red": Colour}).get("red") is Colour


def test_an_unknown_name_is_an_error_with_a_suggestion() -> None:
    """A typo is answered with the name that was meant, and with all that are known."""
    colours = Registry("nothing.here", "colour", {"red": Colour, "green": Colour})
    with pytest.raises(UnknownName) as error:
        colours.get("gren")
    assert str(error.value) == "unknown colour 'gren'; did you mean 'green'? (known: green, red)"


def test_nothing_is_suggested_where_nothing_is_close() -> None:
    """A name like no other is answered with those that are known."""
    assert did_you_mean("xyzzy", ["red"]) == " (known: red)"
    assert did_you_mean("xyzzy", []) == " (known: none)"


@pytest.mark.parametrize(
    ("scheme", "module", "extra"), [("amqp", "pika", "rabbitmq"), ("kafka", "confluent_kafka", "kafka")]
)
def test_a_missing_package_is_answered_with_the_install_line(
    monkeypatch: pytest.MonkeyPatch, scheme: str, module: str, extra: str
) -> None:
    """An implementation whose dependency is absent says which extra brings it."""
    monkeypatch.setattr(registry, "installed", lambda group: {scheme: Point(scheme, module)})
    with pytest.raises(MissingExtra, match=rf"pip install 'oncemq\[{extra}\]'"):
        Registry("oncemq.adapters", "adapter").get(scheme)


def test_names_are_sorted_and_named_once() -> None:
    """names() holds entry points and extras together."""
    assert Registry("nothing.here", "colour", {"b": Colour, "a": Colour}).names() == ["a", "b"]


def test_names_of_other_frameworks_are_answered_with_ours() -> None:
    """`rabbitmq://` is amqp:// here, not a misspelt rocketmq://."""
    with pytest.raises(UnknownName, match="here it is called 'amqp'"):
        Catalog().adapters.get("rabbitmq")
