"""Which offsets have been read: stretches that grow together."""

from hypothesis import given
from hypothesis import strategies as st

from oncemq_adapters.rocketmq.native.session import Ranges

STRETCHES = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 9)), max_size=30)


@given(STRETCHES)
def test_all_that_was_added_is_in_it_and_nothing_else(stretches: list[tuple[int, int]]) -> None:
    """Whatever overlaps, touches or lies apart."""
    ranges, expected = Ranges(), set[int]()
    for first, more in stretches:
        ranges.add(first, first + more)
        expected |= set(range(first, first + more + 1))
    assert {offset for offset in range(80) if offset in ranges} == expected


@given(STRETCHES)
def test_stretches_that_touch_are_one(stretches: list[tuple[int, int]]) -> None:
    """Reading on takes no memory."""
    ranges = Ranges()
    for first, more in stretches:
        ranges.add(first, first + more)
    ends = [stretch.stop for stretch in ranges._stretches]
    assert all(after.start > end for end, after in zip(ends, ranges._stretches[1:], strict=False))


def test_only_so_many_stretches_are_kept() -> None:
    """The lowest are forgotten."""
    ranges = Ranges()
    for first in range(0, 1000, 10):
        ranges.add(first, first + 1)
    assert len(ranges._stretches) == 64
    assert 990 in ranges
    assert 0 not in ranges
