"""Puts the killer inside RocketMQ's adapters: copies on their way, copies confirmed, progress told to a broker."""

from collections.abc import Callable, Sequence
from typing import Any

from storm.attack.killer import PROGRESS, Killer

Send = Callable[[Sequence[Any]], Sequence[Any]]


def wire_rocketmq(adapter: Any, killer: Killer) -> None:
    """Wire the adapter of any of the drivers."""
    if hasattr(adapter, "_settler"):
        adapter._settler._send = _looking(adapter._send, lambda: adapter._outbox, "_answer", killer)
        return
    adapter._send = _looking(adapter._send, lambda: adapter._desk.producer, "_send_to", killer)
    if killer.wants(PROGRESS):
        _wire_progress(adapter, killer)


def _looking(send: Send, sender: Callable[[], Any], step: str, killer: Killer) -> Send:
    """Return what sends copies, and dies after a step of the sender or when the broker has confirmed.

    Args:
        send: as it is.
        sender: returns what speaks with the broker.
        step: its method after which the broker has the copies, or nearly, and no one has looked at its answer.
        killer: of this process.
    """

    def sent(copies: Sequence[Any]) -> Sequence[Any]:
        what = _what(copies[0])
        if killer.wants(f"{what}-sent"):
            _after(sender(), step, lambda: killer(f"{what}-sent"))
        errors = send(copies)
        if not all(errors):
            killer(f"{what}-confirmed")
        return errors

    return sent


def _after(owner: Any, method: str, then: Callable[[], None]) -> None:
    real = getattr(owner, method)

    def done(*arguments: Any) -> Any:
        result = real(*arguments)
        then()
        return result

    setattr(owner, method, done)


def _what(copy: Any) -> str:
    """A dead letter is a retry beyond its limit over the remoting protocol, and has its own topic through a proxy."""
    dead = copy.topic.startswith("%DLQ%") or getattr(copy, "most_attempts", None) == 0
    return "dead-letter" if dead else "retry"


def _wire_progress(adapter: Any, killer: Killer) -> None:
    opens = adapter.open

    def open_looking(*arguments: Any) -> None:
        opens(*arguments)
        for member in adapter._members:
            member.offsets.commit = _committing(member.offsets.commit, killer)

    adapter.open = open_looking


def _committing(commit: Callable[..., None], killer: Killer) -> Callable[..., None]:
    def committed(queue: Any, **more: Any) -> None:
        news = queue.prefix() != queue.committed
        commit(queue, **more)
        if news:
            killer(PROGRESS)

    return committed
