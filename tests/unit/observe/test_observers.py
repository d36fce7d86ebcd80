"""Telling several observers: all are told, none can hurt."""

import inspect
import logging
from datetime import timedelta

import pytest

from oncemq.contracts.verdict import Outcome
from oncemq.message.envelope import Delivery, Message
from oncemq.observe.events import Observer, TimeLimit
from oncemq.observe.observers import Observers
from oncemq.observe.state import PauseReason

HOOKS = sorted(name for name in vars(Observer) if not name.startswith("_"))
VALUES = {
    "counts": {Outcome.PROCEED: 1},
    "delivery": Delivery(Message("t", b"")),
    "reason": PauseReason.ASKED,
    "error": OSError("gone"),
    "which": TimeLimit.SOFT,
    "next_in": timedelta(1),
    "retry_in": timedelta(1),
}


class Failing(Observer):
    """An observer with a bug."""

    def consumer_resumed(self, consumer, *, after):
        """Fail."""
        raise RuntimeError("observer is broken")


class Recording(Observer):
    """Writes down every call."""

    def __init__(self):
        self.told = []

    def __getattribute__(self, name):
        if name in HOOKS:
            return lambda *args, **kwargs: self.told.append((name, args, kwargs))
        return super().__getattribute__(name)


@pytest.mark.parametrize("hook", HOOKS)
def test_every_hook_is_passed_on_whole(hook):
    """Each method of an observer reaches the others with all its arguments."""
    recording = Recording()
    parameters = inspect.signature(getattr(Observer, hook)).parameters
    given = {name: VALUES.get(name, name) for name in parameters if name != "self"}
    getattr(Observers([recording]), hook)(**given)
    ((name, args, kwargs),) = recording.told
    bound = inspect.signature(getattr(Observer, hook)).bind(None, *args, **kwargs).arguments
    assert (name, {name: value for name, value in bound.items() if name != "self"}) == (hook, given)


def test_an_observer_that_raises_does_no_harm(caplog):
    """The caller hears nothing of it, the next observer is told, the log says it."""
    recording = Recording()
    with caplog.at_level(logging.ERROR):
        Observers([Failing(), recording]).consumer_resumed("award", after=timedelta(1))
    assert recording.told == [("consumer_resumed", ("award",), {"after": timedelta(1)})]
    assert "observer Failing failed" in caplog.text


def test_a_broken_observer_is_logged_once(caplog):
    """Its second failure is silent: a metric that fails on each unit would flood the log."""
    observers = Observers([Failing()])
    with caplog.at_level(logging.ERROR):
        for _ in range(3):
            observers.consumer_resumed("award", after=timedelta(1))
    assert len(caplog.records) == 1
