"""Separate process that receives deliveries, settles none, and waits to be killed."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict
from importlib import import_module
from threading import Event, Timer
from types import TracebackType
from typing import Any, Self

from oncemq.common.clock import SystemClock
from oncemq.contracts.adapter import Adapter, AdapterScope, Subscription
from oncemq.testing.adapter_suite.harness import AdapterHarness
from oncemq.testing.recording_sink import RecordingSink

_HOLDING = "holding"


class Holder:
    """Starts the process and ends it; a context manager, so that none is left over.

    Args:
        harness: of the adapter.
        subscription: of the process.
        count: how many deliveries it must hold.
        forks: it has a forked child then, which lives on when the process is killed, until the context ends.
    """

    def __init__(
        self, harness: AdapterHarness, subscription: Subscription, count: int, *, forks: bool = False
    ) -> None:
        adapter = harness.adapter_class
        order = {
            "module": adapter.__module__,
            "name": adapter.__qualname__,
            "url": harness.url,
            "options": dict(harness.options),
            "subscription": {**asdict(subscription), "options": dict(subscription.options)},
            "count": count,
            "forks": forks,
        }
        self._process = subprocess.Popen(  # noqa: S603 - our own interpreter and module
            [sys.executable, "-m", __name__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        # Through a pipe: a URL with a password does not belong on a command line.
        self._process.stdin.write(json.dumps(order) + "\n")  # type: ignore[union-attr]
        self._process.stdin.flush()  # type: ignore[union-attr]

    def wait_until_holding(self, timeout: float) -> None:
        """Wait until the process holds as many deliveries as ordered."""
        watch = Timer(timeout, self._process.kill)
        watch.start()
        try:
            line = self._process.stdout.readline().strip()  # type: ignore[union-attr]
        finally:
            watch.cancel()
            watch.join()
        assert line == _HOLDING, f"the holding process ended or was too slow: {line!r}"

    def kill(self) -> None:
        """Kill it with SIGKILL, without a clean shutdown."""
        self._process.kill()
        self._process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()


def hold(order: Mapping[str, Any]) -> None:
    """Receive the ordered deliveries, report it, and wait for ever."""
    adapter_class: type[Adapter] = getattr(import_module(order["module"]), order["name"])
    scope = AdapterScope(app="adapter-suite-holder", broker="under-test", clock=SystemClock())
    adapter = adapter_class.build(order["url"], order["options"], scope)
    sink = RecordingSink()
    adapter.open([Subscription(**order["subscription"])], sink)
    sink.wait_for(order["count"])
    if order["forks"] and os.fork() == 0:
        sys.stdin.read()  # until the suite closes the pipe
        os._exit(0)
    sys.stdout.write(f"{_HOLDING}\n")
    sys.stdout.flush()
    Event().wait()


if __name__ == "__main__":
    hold(json.loads(sys.stdin.readline()))
