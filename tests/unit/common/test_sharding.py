"""A key's shard is the same for ever, and a layout says what is wrong with it."""

import pytest

from oncemq.common.sharding import SLOTS, Layout, slot_of


@pytest.mark.parametrize(("key", "slot"), [("a", 458), ("order-1", 396), ("é", 851), ("", 20)])
def test_the_slot_of_a_key_never_changes(key: str, slot: int) -> None:
    """Rows were stored by these numbers; anyone who changes them loses every duplicate."""
    assert slot_of(key) == slot


def test_keys_spread_over_shards() -> None:
    """Ten thousand keys: each of three shards has about a third."""
    layout = Layout.even(3)
    counts = [0, 0, 0]
    for number in range(10_000):
        counts[layout.shard_of(f"order-{number}")] += 1
    assert min(counts) > 3_100


def test_a_layout_is_written_as_it_is_read() -> None:
    """What is stored in a shard can be written in the file."""
    even = Layout.even(3)
    assert [even.slots(shard) for shard in range(3)] == ["0-341", "342-682", "683-1023"]
    assert Layout.of([even.slots(shard) for shard in range(3)]).owners == even.owners
    assert Layout.of(["0-9, 20-1023", "10-19"]).slots(0) == "0-9, 20-1023"


@pytest.mark.parametrize(
    ("slots", "said"),
    [
        (["0-1000", "1002-1023"], "slots 1001 belong to no shard"),
        (["0-600", "600-1023"], "slot 600 is given to shard 0 and to shard 1"),
        (["0-1024"], "they go from 0 to 1023"),
        (["9-1"], "is not a range of slots"),
        (["all"], "names no slots"),
    ],
)
def test_a_layout_with_holes_or_overlaps_is_refused(slots: list[str], said: str) -> None:
    """Every slot has one shard."""
    with pytest.raises(ValueError, match=said):
        Layout.of(slots)


def test_one_shard_has_all_slots() -> None:
    """Sharding may begin with one."""
    assert Layout.even(1).slots(0) == f"0-{SLOTS - 1}"
