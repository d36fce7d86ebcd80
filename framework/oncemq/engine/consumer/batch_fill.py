"""Decides when the waiting messages of a consumer are enough for a batch, and which of them share one."""

from collections import Counter, deque
from collections.abc import Iterable, MutableMapping
from typing import Any

from oncemq.engine.rates.rule import BatchRule
from oncemq.message.envelope import Delivery
from oncemq.message.expressions import compile_expression

_NOT_BEFORE_CHANGE = float("inf")


class BatchFill:
    """Looks at what waits; a scheduler calls it with its lock held.

    Messages are looked at only when enough have arrived since the last look, or when the oldest one has waited long enough.

    Args:
        rule: as declared.
        room: how many messages a consumer may hold; with so many in hand none can arrive to fill a batch.

    Attributes:
        within: seconds that a message waits for others at most.
    """

    __slots__ = (
        "_chosen",
        "_due",
        "_find",
        "_free",
        "_missing",
        "_room",
        "_seen",
        "_size",
        "_stale",
        "within",
    )

    def __init__(self, rule: BatchRule, room: int) -> None:
        self._find = compile_expression(rule.by) if rule.by else None
        self.within = rule.within
        self._room = room
        # Of each group, as it was looked at last, with what has arrived since.
        self._seen: Counter[str] = Counter()
        self._size = 0
        self._due = _NOT_BEFORE_CHANGE
        self._stale = True
        self._missing = 0
        self._free = 0
        self._chosen = ""

    @property
    def groups(self) -> bool:
        """Whether a batch has messages of one group only."""
        return self._find is not None

    @property
    def size(self) -> int:
        """How many messages the chosen batch could have."""
        return self._seen[self._chosen]

    def hurry(self, seconds: float) -> None:
        """Let no message wait longer than this for others."""
        self.within = min(self.within, seconds)
        self._stale = True

    def note(self, delivery: Delivery, body: Any) -> None:
        """Note a message's group, while its body is at hand: a compressed one is decoded again when it runs."""
        if self._find is None:
            return
        value = self._find(delivery.message, body)
        # 1 and "1" are two groups: a handler may rely on the value of the first message.
        delivery.group = value if type(value) is str else "\0" + repr(value)

    def arrived(self, deliveries: Iterable[Delivery], now: float) -> None:
        """Count messages that arrived, whose time begins."""
        for delivery in deliveries:
            delivery.waits_since = now
            self._count(delivery)
            self._free -= 1
        self._due = min(self._due, now + self.within)

    def changed(self) -> None:
        """Look again at the next chance: messages came back, or others may pass."""
        self._stale = True

    def wait(
        self,
        ready: deque[Delivery],
        owned: MutableMapping[str, deque[Delivery]],
        *,
        limit: int,
        now: float,
        in_work: int,
    ) -> float:
        """Return the seconds until a batch is due; 0 if one is now, which `select` returns.

        Args:
            ready: in the order of their arrival; those of owned keys go to the queues of their keys.
            owned: the queues of keys that must not run.
            limit: the most messages of a batch.
            now: in monotonic seconds.
            in_work: how many messages are in hand beside these and those in `owned`.
        """
        if not ready:
            self._stale = True
            return _NOT_BEFORE_CHANGE
        if limit != self._size or self._stale or min(self._missing, self._free) <= 0 or now >= self._due:
            self._look(ready, owned, limit, now, in_work)
        return self._due - now if self._due > now else 0.0

    def select(self, ready: deque[Delivery]) -> deque[Delivery]:
        """Return the messages of the batch that is due, and leave the others in `ready`: nothing overtakes in a key."""
        self._stale = True
        mine, others, blocked = deque[Delivery](), list[Delivery](), set[str]()
        for delivery in ready:
            if group_of(delivery) == self._chosen and delivery.key not in blocked:
                mine.append(delivery)
            else:
                others.append(delivery)
                blocked.add(delivery.key)
        ready.clear()
        ready.extend(others)
        return mine

    def _count(self, delivery: Delivery) -> None:
        group = group_of(delivery)
        self._seen[group] += 1
        self._missing = min(self._missing, self._size - self._seen[group])

    def _look(
        self,
        ready: deque[Delivery],
        owned: MutableMapping[str, deque[Delivery]],
        limit: int,
        now: float,
        in_work: int,
    ) -> None:
        """Count the messages of each group that may run, and choose the group that is due, or note when one will be."""
        _give_back_owned(ready, owned)
        self._seen.clear()
        self._size, self._missing, self._stale = limit, limit, False
        oldest: dict[str, float] = {}
        first: dict[str, str] = {}
        for delivery in ready:
            group = group_of(delivery)
            if first.setdefault(delivery.key, group) != group:
                # Behind one of its key in another group; nothing of the key overtakes it.
                first[delivery.key] = "\0\0"
                continue
            self._count(delivery)
            since = since_of(delivery)
            if since < oldest.get(group, _NOT_BEFORE_CHANGE):
                oldest[group] = since
        within = self.within
        self._free = self._room - len(ready) - in_work - sum(map(len, owned.values()))
        due = [group for group in oldest if self._seen[group] >= limit or oldest[group] + within <= now]
        if due:
            self._chosen = min(due, key=oldest.__getitem__)
            self._due = now
        elif oldest and self._free <= 0:
            # Nothing more can arrive. The largest is the best that there is, and the others become due.
            self._chosen = max(oldest, key=self._seen.__getitem__)
            self._due = now
        else:
            self._due = min(oldest.values(), default=_NOT_BEFORE_CHANGE) + within


def group_of(delivery: Delivery) -> str:
    """Return a message's group; all have the same one where none was noted."""
    return getattr(delivery, "group", "")


def since_of(delivery: Delivery) -> float:
    """Return since when it waits; long ago for one that was taken over and not received."""
    return getattr(delivery, "waits_since", 0.0)


def _give_back_owned(ready: deque[Delivery], owned: MutableMapping[str, deque[Delivery]]) -> None:
    if not owned:
        return
    free = []
    for delivery in ready:
        queue = owned.get(delivery.key)
        if queue is None:
            free.append(delivery)
        else:
            queue.append(delivery)
    if len(free) < len(ready):
        ready.clear()
        ready.extend(free)
