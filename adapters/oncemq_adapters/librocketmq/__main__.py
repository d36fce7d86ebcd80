"""The process: reads what to consume from its standard input, passes messages on and exits when that ends.

It always exits at once, without shutting the library down: its messages are redelivered to another member.
"""

import ctypes
import os
import signal
import sys
from typing import Any

from oncemq_adapters.librocketmq import frames
from oncemq_adapters.librocketmq.consumer import CRASHED, Consumer
from oncemq_adapters.librocketmq.library import load, send_at_once

_DEATH_OF_PARENT = 1
"""PR_SET_PDEATHSIG in Linux' <sys/prctl.h>."""


def main() -> None:
    """Serve the parent until it is gone."""
    _end_with_parent()
    source, target = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb", buffering=0)
    # Whatever the library prints must not get among our frames.
    os.dup2(os.open(os.devnull, os.O_RDWR), 1)
    try:
        _serve(source, frames.Writer(target))
    except BaseException:
        os._exit(CRASHED)
    os._exit(0)


def _end_with_parent() -> None:
    """Be killed when the thread that started us ends: while we are frozen, the end of our input ends nothing."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_DEATH_OF_PARENT, signal.SIGKILL)


def _serve(source: Any, writer: frames.Writer) -> None:
    first = frames.read(source)
    if first is None:
        return
    try:
        # The library writes its log into the home folder, whatever is configured.
        os.environ["HOME"] = first["log_folder"]
        consumer = Consumer(load(first["library"]), first, writer.write)
        consumer.start()
    except (RuntimeError, ImportError, ValueError) as error:
        writer.write({"kind": frames.FAILED, "why": f"{type(error).__name__}: {error}"})
        return
    send_at_once()
    writer.write({"kind": frames.STARTED})
    while (frame := frames.read(source)) is not None:
        if frame["kind"] == frames.FINISHED:
            consumer.passes.finish((_identity(message), message[-1]) for message in frame["messages"])
        elif frame["kind"] == frames.FLUSH:
            send_at_once()
            writer.write({"kind": frames.FLUSHED})
        else:
            consumer.passes.answer(_identity(frame["message"]))


def _identity(values: list[Any]) -> frames.Identity:
    topic, number, offset, stored_at, unique_id = values[:5]
    return topic, number, offset, stored_at, unique_id


if __name__ == "__main__":
    main()
