"""How the partitions of a group are shared out among its members."""

import math
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncemq_adapters.rabbitmq.consuming.shares import EXPIRY, LONGEST_INTERVAL, Members, shares

MEMBERS = st.sets(st.text(min_size=1, max_size=5), min_size=1, max_size=12)


@given(members=MEMBERS, partitions=st.integers(1, 64))
def test_every_partition_has_one_member_and_shares_are_even(members: set[str], partitions: int) -> None:
    """Shares differ by one at most."""
    found = shares(members, partitions)
    assert sorted(number for mine in found.values() for number in mine) == list(range(partitions))
    sizes = {len(mine) for mine in found.values()}
    assert max(sizes) - min(sizes) <= 1


@given(members=MEMBERS)
def test_members_agree_whatever_order_they_heard_each_other_in(members: set[str]) -> None:
    """Shares depend on the names alone."""
    assert shares(sorted(members), 16) == shares(sorted(members, reverse=True), 16)


def test_few_partitions_move_when_a_member_joins() -> None:
    """Far fewer than if all were shared out again: that would move four fifths of them."""
    moved = 0
    for run in range(20):
        names = [f"{run}-{name}" for name in "abcde"]
        before, after = _owners(shares(names[:4], 60)), _owners(shares(names, 60))
        moved += sum(before[number] != owner for number, owner in after.items())
    assert moved / 20 < 30


def _owners(found: Mapping[str, Sequence[int]]) -> Mapping[int, str]:
    return {number: member for member, numbers in found.items() for number in numbers}


def test_a_member_that_is_not_heard_counts_as_gone() -> None:
    """After three and a half of its own intervals."""
    members = Members("me", 1.0)
    assert members.heard("other", here=True, every=1.0, now=10.0)
    assert members.alive(13.4) == ["other"]
    assert members.alive(13.6) == []


def test_a_member_with_longer_intervals_may_be_silent_for_longer() -> None:
    """It tells its interval with every announcement."""
    members = Members("me", 1.0)
    members.heard("other", here=True, every=4.0, now=10.0)
    assert members.alive(23.0) == ["other"]


def test_hearing_a_member_again_changes_nothing() -> None:
    """Only joining and leaving change the shares; what a member says of itself comes back to it."""
    members = Members("me", 1.0)
    assert members.heard("other", here=True, every=1.0, now=0.0)
    assert not members.heard("other", here=True, every=1.0, now=1.0)
    assert not members.heard("me", here=True, every=1.0, now=1.0)
    assert members.heard("other", here=False, every=1.0, now=2.0)
    assert not members.heard("other", here=False, every=1.0, now=2.0)


@pytest.mark.parametrize("every", [math.inf, math.nan, 1e300, -math.inf])
def test_no_announcement_keeps_a_member_for_ever(every: float) -> None:
    """A forged one would take partitions that no process consumes."""
    members = Members("me", 1.0)
    members.heard("other", here=True, every=every, now=0.0)
    assert members.alive(1.0) == ["other"]
    assert members.alive(EXPIRY * LONGEST_INTERVAL + 1) == []
