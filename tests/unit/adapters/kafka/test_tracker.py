"""The tracker of a partition: what may be committed, and what the metadata of an offset tells the next owner."""

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncemq_adapters.kafka.tracker import LONGEST, PREFIX, Entry, PartitionTracker, State, decode, encode


@dataclass(frozen=True)
class Raw:
    """A record with nothing but its offset."""

    number: int

    def offset(self) -> int:
        """Return it."""
        return self.number


def tracker_with(*offsets: int, start: int = 0) -> tuple[PartitionTracker, list[Entry]]:
    """Return a tracker whose messages are out."""
    tracker = PartitionTracker(None, "topic", 0, 1, start)
    entries = [entry for offset in offsets if (entry := tracker.add(Raw(offset)))]
    assert all(tracker.deliver(entry) for entry in entries)
    return tracker, entries


def settle(tracker: PartitionTracker, *entries: Entry) -> None:
    """Settle as an acknowledgement does."""
    assert [tracker.claim(entry) for entry in entries] == [None] * len(entries)
    assert tracker.settle(entries) == []


def test_the_committed_offset_does_not_pass_an_unsettled_message() -> None:
    """Whatever is settled behind it, the offset stays at the first unsettled message."""
    tracker, entries = tracker_with(0, 1, 2, 3)
    settle(tracker, entries[0], entries[2], entries[3])
    offset, metadata = tracker.progress() or (None, "")
    assert offset == 1
    assert decode(1, metadata) == [range(2, 4)]


def test_a_closed_gap_lets_the_offset_go_to_the_end() -> None:
    """When the gap is settled last, everything before the next record is passed."""
    tracker, entries = tracker_with(0, 1, 5)
    settle(tracker, entries[1], entries[2])
    settle(tracker, entries[0])
    assert tracker.progress() == (6, "")


def test_the_next_owner_does_not_deliver_what_was_settled_ahead() -> None:
    """Only the unsettled record comes again, in the next assignment."""
    tracker, entries = tracker_with(0, 1, 2, 3)
    settle(tracker, entries[0], entries[1], entries[3])
    offset, metadata = tracker.progress() or (0, "")
    after = PartitionTracker(None, "topic", 0, 2, offset, decode(offset, metadata))
    fresh = [entry.offset for number in (2, 3, 4) if (entry := after.add(Raw(number)))]
    assert fresh == [2, 4]


def test_what_was_settled_before_stays_in_the_metadata_until_it_is_received() -> None:
    """An owner that passes the partition on at once passes on what it was told."""
    after = PartitionTracker(None, "topic", 0, 2, 2, [range(3, 5), range(9, 10)])
    assert after.add(Raw(2)) is not None
    offset, metadata = after.progress() or (0, "")
    assert (offset, decode(offset, metadata)) == (2, [range(3, 5), range(9, 10)])


def test_a_given_back_message_is_not_passed() -> None:
    """It is neither settled nor out."""
    tracker, entries = tracker_with(0, 1)
    settle(tracker, entries[1])
    tracker.give_back(entries[0])
    assert (tracker.progress() or (None,))[0] == 0
    assert tracker.out == 0
    assert tracker.deliver(entries[0])


def test_nothing_of_a_void_partition_is_settled() -> None:
    """A settlement that was claimed before comes too late."""
    tracker, entries = tracker_with(0, 1)
    assert tracker.claim(entries[0]) is None
    tracker.make_void()
    assert tracker.settle(entries[:1]) == entries[:1]
    assert tracker.claim(entries[1]) is State.RETURNED
    assert (tracker.progress() or (None,))[0] == 0


def test_a_record_that_was_received_before_is_left_out() -> None:
    """A client that fetches again after a pause delivers nothing twice."""
    tracker, _ = tracker_with(0, 1)
    assert tracker.add(Raw(1)) is None


def test_a_refused_commit_is_made_again() -> None:
    """Progress that did not arrive is progress once more."""
    tracker, entries = tracker_with(0)
    settle(tracker, entries[0])
    tracker.committed = tracker.progress()
    assert tracker.progress() is None
    tracker.uncommitted()
    assert tracker.changed
    assert tracker.progress() == (1, "")


@given(st.integers(0, 2**62), st.lists(st.tuples(st.integers(1, 10**6), st.integers(1, 10**6)), max_size=60))
def test_metadata_tells_what_was_written(offset: int, gaps: list[tuple[int, int]]) -> None:
    """Runs of settled offsets survive the way through metadata."""
    runs, at = [], offset
    for gap, length in gaps:
        runs.append(range(at + gap, at + gap + length))
        at += gap + length
    text = encode(offset, runs)
    assert decode(offset, text) == runs[: len(decode(offset, text))]
    assert len(gaps) > 50 or decode(offset, text) == runs


def test_metadata_is_short_whatever_was_settled() -> None:
    """Brokers refuse commits whose metadata is longer than theirs, and all progress would stop."""
    runs = [range(number, number + 1) for number in range(1, 100_000, 2)]
    text = encode(0, runs)
    assert len(text) <= LONGEST
    assert decode(0, text) == runs[: len(decode(0, text))] != []


@pytest.mark.parametrize("text", [None, "", "by another client", PREFIX + "%", PREFIX + "gA"])
def test_metadata_of_others_says_nothing(text: str | None) -> None:
    """What another client or tool wrote is no run of offsets."""
    assert decode(7, text) == []
