"""What a breaker counts: the last seconds and no more, many keys in bounded memory."""

import random
from collections import Counter

from oncemq.engine.breakers.windows import KeyCounts, KeyWindow, Totals, Window


def test_what_is_older_than_the_window_is_forgotten() -> None:
    """Ten minutes ago is not now."""
    window = Window(60.0, 0.0)
    window.add(Totals(10, 10, 0), 0.0)
    window.add(Totals(5, 0, 5), 59.0)
    assert window.total(59.5).messages == 15
    found = window.total(60.0)
    assert (found.messages, found.duplicates, found.failures) == (5, 0, 5)
    assert window.total(200.0).messages == 0


def test_a_young_window_covers_what_it_has_seen() -> None:
    """A rate is of the seconds that were counted."""
    window = Window(60.0, 100.0)
    assert [window.length(now) for now in (100.0, 110.0, 500.0)] == [1.0, 10.0, 60.0]


def test_few_keys_are_counted_exactly() -> None:
    """As a counter does."""
    counts = KeyCounts()
    counts.add(["a", "b", "a"])
    assert (counts["a"], counts["b"], counts.first()) == (2, 1, ("a", 2))


def test_many_keys_take_bounded_memory_and_the_frequent_one_is_found() -> None:
    """A count is never too high, and too low by at most a 201st of the messages."""
    draw = random.Random(7)
    keys = [f"k{draw.randrange(100_000)}" if draw.random() < 0.7 else "hot" for _ in range(50_000)]
    counts, most = KeyCounts(), 0
    for start in range(0, len(keys), 500):
        counts.add(keys[start : start + 500])
        most = max(most, len(counts))
    true = Counter(keys)["hot"]
    key, count = counts.first()
    assert key == "hot"
    assert true - len(keys) / 201 <= count <= true
    assert most <= 2_000


def test_an_earlier_hot_key_is_forgotten() -> None:
    """After the window it counts no more."""
    window = KeyWindow(60.0, 0.0)
    window.add(["old"] * 10)
    assert window.first(29.0) == ("old", 10, 10)
    assert window.first(31.0) == ("old", 10, 10)
    window.add(["new"] * 2)
    assert window.first(62.0) == ("new", 2, 2)
    assert window.first(200.0) == ("", 0, 0)


def test_without_messages_there_is_no_key() -> None:
    """Nothing is no hot key."""
    assert KeyWindow(60.0, 0.0).first(1.0) == ("", 0, 0)
