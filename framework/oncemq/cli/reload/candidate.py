"""Checks a configuration that is to replace the one that runs, in a process of its own, and compares both."""

import multiprocessing
import os
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, is_dataclass
from hashlib import sha256
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from oncemq.cli.preflight import connect_to_all
from oncemq.config import load
from oncemq.config.build.plan import LoadedApp
from oncemq.contracts.broker_queries import NamedMember
from oncemq.errors import ConfigError

CHECKED_WITHIN = 120.0
"""Seconds that a check may take, its imports and connections included."""
_OF_THE_SUPERVISOR = ("app", "database", "redis", "ledger", "state", "grace", "processes", "recycle", "http")
_OF_A_CONSUMER = (
    "topic",
    "broker",
    "group",
    "effects",
    "key",
    "version",
    "identity",
    "format",
    "strategies",
    "hold_key",
    "hold_dead",
    "formerly",
    "instance",
    "options",
)
_WRITTEN = {"hold_key": "on_retry", "hold_dead": "on_dead", "options": "options of its topic"}


@dataclass(frozen=True, slots=True)
class Candidate:
    """A configuration as far as two of them are compared.

    Args:
        problems: why it cannot run.
        fixed: digests of what old and new processes must have in common while they run side by side.
        parts: digests of all sections and consumers.
        former: former names by consumer.
    """

    problems: tuple[str, ...] = ()
    fixed: Mapping[str, str] | None = None
    parts: Mapping[str, str] | None = None
    former: Mapping[str, tuple[str, ...]] | None = None

    def changed_from(self, old: "Candidate") -> list[str]:
        """Return the sections and consumers that differ."""
        here, there = self.parts or {}, old.parts or {}
        return sorted(name for name in {*here, *there} if here.get(name) != there.get(name))

    def obstacles(self, old: "Candidate") -> list[str]:
        """Return what keeps this configuration from replacing `old` without a stop."""
        here, there = self.fixed or {}, old.fixed or {}
        found = [
            f"{name} cannot change while old and new processes run side by side – stop the app and start it again"
            for name in sorted(here)
            if name in there and here[name] != there[name]
        ]
        running_consumers = set(old.former or {})
        found += [
            f"consumers.{name} takes over the records of {former}, which still runs – stop the app and start it again"
            for name, formers in (self.former or {}).items()
            for former in formers
            if name not in running_consumers and former in running_consumers
        ]
        return found


def running(loaded: LoadedApp) -> Candidate:
    """Return what is compared of an app that may run."""
    model = loaded.model
    fixed = {name: _digest(getattr(model, name)) for name in _OF_THE_SUPERVISOR}
    parts = {name: _digest(value) for name, value in model if name != "consumers"}
    for settings in loaded.consumers:
        place = f"consumers.{settings.name}"
        # Old processes do not leave a new topic's messages in the ledger alone, and take none of one that they do not know.
        fixed[f"consumers.{settings.declared}: topics"] = _digest(settings.topics)
        for name in _OF_A_CONSUMER:
            fixed[f"{place}: {_WRITTEN.get(name, name)}"] = _digest(getattr(settings, name))
        parts[place] = _digest(
            {f.name: getattr(settings, f.name) for f in fields(settings) if f.name != "origins"}
        )
    return Candidate((), fixed, parts, {each.declared: tuple(each.formerly) for each in loaded.consumers})


def check(files: Sequence[Path], texts: Mapping[Path, bytes], within: float = CHECKED_WITHIN) -> Candidate:
    """Check a configuration as `oncemq check --connect` does, with the handlers' code as it is now.

    Args:
        files: the app's.
        texts: of the files.
        within: seconds after which it is refused.
    """
    spawn = multiprocessing.get_context("spawn")
    mine, its = spawn.Pipe(duplex=False)
    process = spawn.Process(
        target=_check, args=(tuple(files), dict(texts), its), name="oncemq-check", daemon=True
    )
    process.start()
    its.close()
    try:
        answer = Candidate((f"the check has not ended within {within:.0f} s",))
        if mine.poll(within):
            answer = Candidate(("the process that checked it has died",))
            with suppress(EOFError, OSError):
                answer = mine.recv()
        return answer
    finally:
        process.kill()
        process.join()
        process.close()
        mine.close()


def _check(files: tuple[Path, ...], texts: Mapping[Path, bytes], answers: Connection) -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        answer = _checked(files, texts)
    except ConfigError as error:
        answer = Candidate(tuple(map(str, error.problems)))
    except BaseException as error:  # an import of the user's may raise anything, also SystemExit
        answer = Candidate((f"{type(error).__name__}: {error}",))
    with suppress(OSError):  # the supervisor has ended
        answers.send(answer)
    os._exit(0)  # threads of the user's imports may never end


def _checked(files: tuple[Path, ...], texts: Mapping[Path, bytes]) -> Candidate:
    loaded = load(files, texts=texts)
    candidate = running(loaded)
    proof = connect_to_all(loaded)
    problems = [str(problem) for problem in (*proof.problems.errors, *proof.failures)]
    if not loaded.plan.consumers:
        problems.append("there are no consumers to run – declare one below consumers:")
    for name, adapter in loaded.plan.adapters.items():
        option = adapter.member_name() if isinstance(adapter, NamedMember) else None
        if option is not None:
            problems.append(
                f"{option} of broker {name!r} gives every process its name, so a new one cannot run beside the one that it "
                f"replaces – stop the app and start it again"
            )
    return Candidate(tuple(problems), candidate.fixed, candidate.parts, candidate.former)


def _digest(value: object) -> str:
    return sha256(repr(_plain(value)).encode()).hexdigest()


def _plain(value: Any) -> Any:
    """Return `value` in a form whose repr is the same in every process."""
    plain: Any
    if hasattr(value, "reveal"):
        plain = value.reveal()
    elif isinstance(value, BaseModel):
        # `dict(value)` would call a field that is named `keys`.
        declared = {name: part for name, part in value}  # noqa: C416
        plain = sorted(
            (name, _plain(part)) for name, part in {**declared, **(value.model_extra or {})}.items()
        )
    elif is_dataclass(value) and not isinstance(value, type):
        plain = [(each.name, _plain(getattr(value, each.name))) for each in fields(value)]
    elif isinstance(value, Mapping):
        plain = sorted(((str(name), _plain(part)) for name, part in value.items()), key=repr)
    elif isinstance(value, set | frozenset):
        plain = sorted(repr(_plain(part)) for part in value)
    elif isinstance(value, list | tuple):
        plain = [_plain(part) for part in value]
    elif hasattr(value, "__qualname__"):
        plain = f"{value.__module__}:{value.__qualname__}"
    else:
        text = repr(value)
        plain = type(value).__qualname__ if " at 0x" in text else text
    return plain
