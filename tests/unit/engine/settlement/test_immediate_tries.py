"""Tests of immediate tries that the end of a process cuts short."""

import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from oncemq.contracts.checks import Effects
from oncemq.engine.application import Application
from oncemq.message import headers
from oncemq.retry.backoff import RetryPolicy
from oncemq.testing.scripted import ScriptedAdapter
from support.apps.program import eventually
from support.engine import make_app, make_consumer, running


def handler_of(kind: str, work: Callable[[], None]) -> Callable[..., Any]:
    """Return a plain or an async handler that does `work`."""

    def plain(_: dict[str, Any]) -> None:
        work()

    async def coroutine(_: dict[str, Any]) -> None:
        work()

    return plain if kind == "plain" else coroutine


@pytest.mark.parametrize("kind", ["plain", "async"])
def test_a_message_that_failed_is_no_new_one_after_the_process(kind: str) -> None:
    """It is not given back as if it had never run: its copy has the attempt and the error."""
    adapter, begun = ScriptedAdapter(), threading.Event()
    apps: list[Application] = []

    def fail() -> None:
        begun.set()
        apps[0].stop()
        gate = apps[0]._crews["points"].consumer.gate
        eventually(lambda: gate.stopped, "the process to end its workers")
        raise ValueError("no")

    policy = RetryPolicy(attempts=3, first=timedelta(milliseconds=10), immediate=5)
    consumer = make_consumer(handler_of(kind, fail), [], effects=Effects.EXTERNAL, retry=policy)
    with running(make_app(adapter, None, consumer)) as app:
        apps.append(app)
        adapter.deliver(b'{"id": "1", "key": "k"}')
        assert begun.wait(20)
    (later,) = adapter.retried
    assert (later.headers[headers.ATTEMPT], later.headers[headers.ERROR_TEXT]) == ("2", "ValueError: no")
    assert adapter.given_back == []
