"""URLs and options of the embedded broker."""

from datetime import timedelta
from pathlib import Path

import pytest

from oncemq.errors import ConfigError
from oncemq_adapters.embedded.settings import read_settings


def test_three_slashes_are_relative():
    """`embedded:///shop.db` lies in the current folder, as in SQLAlchemy's URLs."""
    assert read_settings("embedded:///shop.db", {}, "b").path == Path.cwd() / "shop.db"


def test_four_slashes_are_absolute():
    """`embedded:////var/lib/shop.db` is an absolute path."""
    assert read_settings("embedded:////var/lib/shop.db", {}, "b").path == Path("/var/lib/shop.db")


def test_percent_signs_are_decoded():
    """A blank in a path is written %20."""
    assert read_settings("embedded:////a%20b.db", {}, "b").path == Path("/a b.db")


@pytest.mark.parametrize(("url", "name"), [("embedded://", "default"), ("embedded://shop", "shop")])
def test_no_path_is_memory(url: str, name: str):
    """Without a path the broker is in memory, under the name of the host part."""
    settings = read_settings(url, {}, "b")
    assert (settings.path, settings.memory) == (None, name)


@pytest.mark.parametrize("url", ["embedded://host/shop.db", "embedded:///a.db?x=1", "embedded://u:p@host"])
def test_other_urls_are_refused(url: str):
    """A host together with a path, a query, or credentials is answered with what to write instead."""
    with pytest.raises(ConfigError, match=r"embedded:///shop\.db") as caught:
        read_settings(url, {}, "b")
    assert "u:p" not in str(caught.value)


def test_options_are_read():
    """Durations are text or timedelta."""
    options = {"lease": "30s", "lock_timeout": timedelta(seconds=2), "max_body": 10, "power_safe": False}
    settings = read_settings("embedded://", options, "b")
    assert settings.lease == timedelta(seconds=30)
    assert settings.lock_timeout == timedelta(seconds=2)
    assert (settings.max_body, settings.power_safe) == (10, False)


def test_every_problem_is_told_at_once():
    """Unknown options come with a suggestion, bad values with their name; all in one error."""
    options = {"leas": "30s", "lock_timeout": "0s", "max_body": True, "power_safe": "yes"}
    with pytest.raises(ConfigError) as caught:
        read_settings("embedded://", options, "shop")
    text = str(caught.value)
    assert "did you mean 'lease'?" in text
    assert all(f"option {name!r}" in text for name in ("lock_timeout", "max_body", "power_safe"))
    assert all("'shop'" in line for line in text.splitlines())
