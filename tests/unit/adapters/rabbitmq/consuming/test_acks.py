"""The acknowledgement tracker, held against a model of the broker's own rules."""

import threading
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from oncemq_adapters.rabbitmq.consuming.acks import GAP_PATIENCE, AckTracker, Frame

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("deliver"), st.integers(1, 3)),
        st.tuples(st.just("finish"), st.integers(1, 60)),
        st.tuples(st.just("give back"), st.integers(1, 60)),
        st.tuples(st.just("claim and leave"), st.integers(1, 60)),
        st.tuples(st.just("send"), st.integers(0, 2)),
    ),
    max_size=120,
)


@dataclass
class Broker:
    """What RabbitMQ does with settling frames: an unknown tag closes the channel."""

    unsettled: list[int] = field(default_factory=list)
    acknowledged: list[int] = field(default_factory=list)
    requeued: list[int] = field(default_factory=list)

    def receive(self, frame: Frame) -> None:
        """Apply one frame."""
        assert frame.tag in self.unsettled, f"unknown delivery tag {frame.tag}: the channel would be closed"
        tags = [tag for tag in self.unsettled if tag == frame.tag or (frame.multiple and tag < frame.tag)]
        (self.requeued if frame.requeue else self.acknowledged).extend(tags)
        self.unsettled = [tag for tag in self.unsettled if tag not in tags]


@given(steps=STEPS, window=st.sampled_from([1, 4, 100]))
@settings(max_examples=400, deadline=None)
def test_only_finished_tags_are_acknowledged_and_each_once(steps: list[tuple[str, int]], window: int) -> None:
    """Whatever the order: no unfinished tag is settled, no tag twice, and at the end every finished tag is."""
    tracker, broker, now = AckTracker(window), Broker(), 0.0
    last, finished, given_back = 0, set(), set()
    for what, number in steps:
        if what == "deliver":
            # A number above 1 skips tags, which the client library has settled itself.
            last += number
            tracker.delivered(last)
            broker.unsettled.append(last)
        elif what == "send":
            now += number * GAP_PATIENCE
            for frame in tracker.frames(now):
                broker.receive(frame)
        elif number <= last and tracker.claim(number):
            if what == "finish":
                tracker.finish(number)
                finished.add(number)
            elif what == "give back":
                tracker.give_back(number)
                given_back.add(number)
            else:
                tracker.unclaim(number)
        assert set(broker.acknowledged) <= finished
        assert set(broker.requeued) <= given_back
    for frame in tracker.frames(now, everything=True):
        broker.receive(frame)
    assert sorted(broker.acknowledged) == sorted(finished)
    assert sorted(broker.requeued) == sorted(given_back)


def tracker_with(count: int, window: int = 1000) -> AckTracker:
    """Return a tracker that has seen the tags 1 to `count`."""
    tracker = AckTracker(window)
    for tag in range(1, count + 1):
        tracker.delivered(tag)
    return tracker


def finish(tracker: AckTracker, *tags: int) -> None:
    """Finish tags."""
    for tag in tags:
        assert tracker.claim(tag)
        tracker.finish(tag)


def test_a_finished_prefix_costs_one_frame() -> None:
    """A hundred messages that are done in any order are acknowledged together."""
    tracker = tracker_with(150)
    finish(tracker, *range(100, 0, -1))
    assert tracker.frames(0.0) == [Frame(100, multiple=True)]


def test_what_waits_behind_a_gap_waits_a_moment() -> None:
    """A gap that has just opened may close; nothing is sent one by one yet."""
    tracker = tracker_with(10)
    finish(tracker, 2, 3)
    assert tracker.frames(0.0) == []
    assert tracker.is_waiting()
    finish(tracker, 1)
    assert tracker.frames(0.01) == [Frame(3, multiple=True)]


def test_a_gap_that_stays_is_passed_by() -> None:
    """What waits behind a slow message is acknowledged one by one after the patience is over."""
    tracker = tracker_with(10)
    finish(tracker, 2, 3)
    tracker.frames(0.0)
    assert tracker.frames(GAP_PATIENCE) == [Frame(2), Frame(3)]
    finish(tracker, 1, 4)
    assert tracker.frames(1.0) == [Frame(4, multiple=True)]


def test_a_full_window_does_not_wait() -> None:
    """A quarter of the window behind a gap is acknowledged at once, or consuming would starve."""
    tracker = tracker_with(4, window=4)
    finish(tracker, 2)
    assert tracker.frames(0.0) == [Frame(2)]


def test_the_second_claim_fails() -> None:
    """A tag that was claimed, finished, or acknowledged long ago cannot be claimed again."""
    tracker = tracker_with(2)
    finish(tracker, 1)
    assert not tracker.claim(1)
    tracker.frames(0.0)
    assert not tracker.claim(1)
    assert tracker.claim(2)
    assert not tracker.claim(2)


def test_an_unclaimed_tag_can_be_claimed_again() -> None:
    """A settlement that failed leaves the message unsettled."""
    tracker = tracker_with(1)
    assert tracker.claim(1)
    tracker.unclaim(1)
    assert tracker.claim(1)


def test_many_threads_claim_each_tag_once() -> None:
    """Eight threads that want all tags get each of them exactly once between them."""
    tracker, won = tracker_with(2000), []
    start = threading.Barrier(8)

    def work() -> None:
        start.wait()
        for tag in range(1, 2001):
            if tracker.claim(tag):
                won.append(tag)
                tracker.finish(tag)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(won) == list(range(1, 2001))
    assert tracker.frames(0.0) == [Frame(2000, multiple=True)]


def test_unsettled_are_those_neither_finished_nor_given_back() -> None:
    """Claimed ones count until their copy is confirmed; frames that were sent change nothing."""
    tracker = AckTracker(100)
    for tag in range(1, 6):
        tracker.delivered(tag)
    for tag in (1, 3, 4):
        assert tracker.claim(tag)
    tracker.finish(1)
    tracker.finish(3)
    assert tracker.unsettled() == 3
    tracker.give_back(4)
    assert tracker.unsettled() == 2
    tracker.frames(0.0, everything=True)
    assert tracker.unsettled() == 2
