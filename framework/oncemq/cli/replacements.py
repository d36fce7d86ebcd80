"""Logs and counts the replacements of worker processes."""

from collections.abc import Callable

import structlog

from oncemq.engine.supervision.recycling import Reason
from oncemq.engine.supervision.replacing import Replacement, Step
from oncemq.observe.process_group import ProcessGroup

_WARNINGS = frozenset({Step.FAILED, Step.UNLIMITED})
_TEXTS = {
    Step.STARTED: "a successor of a worker process starts",
    Step.TOOK_OVER: "a successor took over from a worker process, which drains",
    Step.DONE: "worker process was replaced",
    Step.CANCELLED: "a successor is not needed any more",
    Step.FAILED: "a successor of a worker process did not become ready; the process goes on",
    Step.UNLIMITED: "worker process needs more than above_memory from its start; it is not recycled for its memory",
}


def telling(group: ProcessGroup | None) -> Callable[[Replacement], None]:
    """Return what is called at each step of a replacement.

    Args:
        group: the endpoint, which is to ask the processes that take part; None without one.
    """

    def tell(step: Replacement) -> None:
        log = structlog.get_logger("oncemq")
        (log.warning if step.step in _WARNINGS else log.info)(_TEXTS[step.step], **_fields(step))
        if group is not None:
            _count(group, step)

    return tell


def _count(group: ProcessGroup, step: Replacement) -> None:
    if step.step is Step.TOOK_OVER:
        group.worker_replaced(step.old, step.new)
    elif step.step is Step.DONE:
        group.worker_left(step.old)
    if step.step in {Step.DONE, Step.FAILED} and step.reason is not Reason.RELOAD:
        group.count_recycle(step.old, step.reason.value, failed=step.step is Step.FAILED)


def _fields(step: Replacement) -> dict[str, object]:
    found: dict[str, object] = {"process": step.old, "pid": step.old_pid, "reason": step.reason.value}
    if step.step is not Step.UNLIMITED:
        found |= {"successor": step.new, "successor_pid": step.new_pid}
    found |= {"messages": step.messages, "memory_mib": step.memory >> 20}
    if step.step not in {Step.STARTED, Step.UNLIMITED, Step.CANCELLED}:
        found["seconds"] = round(step.seconds, 1)
    if step.again_in is not None:
        found["again_in"] = f"{step.again_in:.0f}s"
    return found
