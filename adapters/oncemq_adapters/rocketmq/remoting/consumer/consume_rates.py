"""Rates of a member over the last minute, by topic, as RocketMQ's administrators ask for them."""

from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from time import monotonic

from oncemq_adapters.rocketmq.remoting.consumer.process_queue import ProcessQueue

SAMPLE_EVERY = 10.0
_SAMPLES = 7
"""A minute's."""

_Sums = dict[str, Counter[str]]


class ConsumeRates:
    """Sums of a member's queues, sampled.

    Args:
        queues: returns those that are ours now.
    """

    def __init__(self, queues: Callable[[], Iterable[ProcessQueue]]) -> None:
        self._queues = queues
        self._gone: _Sums = {}
        self._known: dict[ProcessQueue, Counter[str]] = {}
        self._samples: deque[tuple[float, _Sums]] = deque([(monotonic(), {})], maxlen=_SAMPLES)

    def sample(self) -> None:
        """Remember the sums of now; on one thread."""
        self._samples.append((monotonic(), self._sums()))

    def by_topic(self) -> Mapping[str, Mapping[str, float]]:
        """Return the rates of each topic, in the words of Java's `ConsumeStatus`; from any thread."""
        then, before = self._samples[0]
        now, sums = self._samples[-1]
        seconds = max(now - then, 0.001)
        waiting: Counter[str] = Counter()
        for queue in self._queues():
            waiting[queue.topic] += queue.cached().messages
        return {
            topic: _status(found - before.get(topic, Counter()), waiting[topic], seconds)
            for topic, found in sums.items()
        }

    def _sums(self) -> _Sums:
        known = {queue: _sum_of(queue) for queue in self._queues()}
        for queue, last in self._known.items():
            if queue not in known:
                self._gone.setdefault(queue.topic, Counter()).update(last)
        self._known = known
        sums = {topic: Counter(gone) for topic, gone in self._gone.items()}
        for queue, found in known.items():
            sums.setdefault(queue.topic, Counter()).update(found)
        return sums


def _sum_of(queue: ProcessQueue) -> Counter[str]:
    work = queue.work
    return Counter(
        pulled=work.pulled,
        pulls=work.pulls,
        pull_ms=round(work.pulling * 1000),
        settled=work.settled,
        moved=work.moved,
    )


def _status(done: Counter[str], waiting: int, seconds: float) -> Mapping[str, float]:
    fine = max(0, done["settled"] - done["moved"])
    return {
        "pullRT": done["pull_ms"] / done["pulls"] if done["pulls"] else 0.0,
        "pullTPS": done["pulled"] / seconds,
        # By Little's law: what is unsettled takes its time at the rate of what gets settled.
        "consumeRT": 1000 * waiting * seconds / done["settled"] if done["settled"] else 0.0,
        "consumeOKTPS": fine / seconds,
        "consumeFailedTPS": done["moved"] / seconds,
        "consumeFailedMsgs": done["moved"],
    }
