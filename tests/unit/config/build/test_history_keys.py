"""Keys that sign what messages carry of their tries."""

from pathlib import Path

import pytest

from oncemq.errors import ConfigError
from support.declared import BASE, loaded

KEY, BEFORE = "k" * 32, "b" * 32


def with_broker(options: str) -> str:
    """Return the usual app with more options of its broker."""
    return BASE.replace('{url: "scripted://host"}', f'{{url: "scripted://host", {options}}}')


def test_consumers_of_the_broker_have_its_keys(tmp_path: Path) -> None:
    """Two while the key is being replaced; the adapter is not given them, and no text shows them."""
    app = loaded(tmp_path, with_broker(f"history_key: {KEY}, history_key_before: {BEFORE}"))
    assert {repr(consumer.history_keys) for consumer in app.plan.consumers} == {"HistoryKeys(2 keys)"}
    assert app.secrets >= {KEY, BEFORE}


def test_there_is_no_key_by_default(tmp_path: Path) -> None:
    """Then the group's own places are trusted."""
    assert {consumer.history_keys for consumer in loaded(tmp_path, BASE).plan.consumers} == {None}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("history_key: short", "fewer than 16 characters"),
        (f"history_key_before: {KEY}", "no history_key that replaces it"),
    ],
)
def test_unusable_keys_are_refused(tmp_path: Path, options: str, said: str) -> None:
    """With the place and what to write, and without the key."""
    with pytest.raises(ConfigError) as caught:
        loaded(tmp_path, with_broker(options))
    assert said in str(caught.value)
    assert "app.yaml:2:" in str(caught.value)
    assert KEY not in str(caught.value)
