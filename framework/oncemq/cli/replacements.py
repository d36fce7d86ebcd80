"""Logs and counts the replacements of worker processes."""

from collections.abc import Callable, Mapping

import structlog

from oncemq.engine.supervision.recycling import Reason
from oncemq.engine.supervision.replacing import Replacement, Step
from oncemq.observe.process_group import ProcessGroup
from oncemq.observe.worker_counts import WorkerCounts


def telling(counts: WorkerCounts, group: ProcessGroup | None) -> Callable[[Replacement], None]:
    """Return what is called at each step of a replacement.

    Args:
        counts: counts those that have ended.
        group: the endpoint, which is to ask the processes that take part; None without one.
    """

    def tell(step: Replacement) -> None:
        _log(step, _fields(step))
        if step.step in {Step.DONE, Step.FAILED} and step.reason is not Reason.RELOAD:
            counts.recycled(step.old, step.reason.value, failed=step.step is Step.FAILED)
        if group is not None:
            _show(group, step)

    return tell


def _log(step: Replacement, fields: Mapping[str, object]) -> None:
    log = structlog.get_logger("oncemq")
    match step.step:
        case Step.STARTED:
            log.info("a successor of a worker process starts", **fields)
        case Step.TOOK_OVER:
            log.info("a successor took over from a worker process, which drains", **fields)
        case Step.DONE:
            log.info("worker process was replaced", **fields)
        case Step.CANCELLED:
            log.info("a successor is not needed any more", **fields)
        case Step.FAILED:
            log.warning("a successor of a worker process did not become ready; the process goes on", **fields)
        case Step.UNLIMITED:
            log.warning(
                "worker process needs more than above_memory from its start; it is not recycled for its memory",
                **fields,
            )


def _show(group: ProcessGroup, step: Replacement) -> None:
    if step.step is Step.TOOK_OVER:
        group.worker_replaced(step.old, step.new)
    elif step.step is Step.DONE:
        group.worker_left(step.old)


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
