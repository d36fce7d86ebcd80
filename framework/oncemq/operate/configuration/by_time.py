"""Tells by the time of a record under which configuration it was written: the history of configurations says when each was loaded."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from sqlalchemy import Engine

from oncemq.ledger.coordination import reloads
from oncemq.ledger.database.connect import READ_ONLY
from oncemq.ledger.records import configurations
from oncemq.ledger.records.configurations import Load

WRITTEN: Final[Mapping[str, str]] = {
    "processed": "processed_at",
    "final_failures": "at",
    "claims": "done_at",
    "states": "changed_at",
    "history": "at",
}
"""Kinds of records whose configuration is told, and the field with the time at which they were written."""
_NO_END: Final = datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class _Period:
    """A configuration that a process runs.

    Args:
        load: when it was loaded, by whom.
        since: the earliest moment at which it can have been loaded.
        sure_until: the process still ran it then; None = not known for how long it did.
        before: what the host ran before, if starts of both are so mixed that their order is not known.
    """

    load: Load
    since: datetime
    sure_until: datetime | None
    before: Load | None


class LoadedConfigurations:
    """The configurations of an app by the time at which they were loaded.

    Args:
        loads: oldest first.
        running: the processes that have not signed off, and until when they have run at least.
    """

    def __init__(self, loads: Sequence[Load], running: Mapping[str, datetime]) -> None:
        self._periods = sorted(_periods(loads, running), key=lambda each: (each.since, each.load.at))

    @classmethod
    def of(cls, engine: Engine, app: str) -> "LoadedConfigurations":
        """Read the history of an app."""
        with engine.connect().execution_options(**{READ_ONLY: True}) as connection:
            running = {
                each.process: each.seen_at if each.silent else _NO_END
                for each in reloads.supervisors(connection, app)
            }
            return cls(configurations.loads(connection, app), running)

    def at(self, moment: datetime) -> list[Load]:
        """Return what ran at a moment, the latest first; several while processes differ, none where nothing is known.

        It is the latest that a process of the app had loaded by then, and others that a process is known to have run then.
        """
        begun = [each for each in self._periods if each.since <= moment]
        if not begun:
            return []
        latest = begun[-1]
        found = [latest.load]
        if latest.before is not None and moment < latest.load.at:
            found.append(latest.before)
        found += [
            each.load
            for each in reversed(begun)
            if each.sure_until is not None and each.load.at <= moment < each.sure_until
        ]
        return list({each.version: each for each in reversed(found)}.values())[::-1]

    def named_in(self, found: Mapping[str, Iterable[dict[str, Any]]]) -> list[dict[str, Any]]:
        """Add `configuration` to records, the versions, and return a row for each version."""
        named: dict[str, Load] = {}
        for kind, field in WRITTEN.items():
            for row in found.get(kind, ()):
                written = row.get(field)
                loads = self.at(written) if isinstance(written, datetime) else []
                if loads:
                    row["configuration"] = " or ".join(each.version for each in loads)
                    named.update({each.version: each for each in loads})
        rows = [
            {
                "version": each.version,
                "number": each.configuration,
                "loaded_at": each.first_at if each.times > 1 and each.first_at else each.at,
                "occasion": each.occasion,
                "who": each.who,
                "host": each.host,
            }
            for each in named.values()
        ]
        return sorted(rows, key=lambda row: row["loaded_at"])


def _periods(loads: Sequence[Load], running: Mapping[str, datetime]) -> Iterator[_Period]:
    following: dict[str, datetime] = {}
    ends: dict[int, datetime | None] = {}
    for number, load in reversed(list(enumerate(loads))):
        ends[number] = following.get(load.process, running.get(load.process))
        following[load.process] = load.at
    before: dict[str, Load] = {}
    for number, load in enumerate(loads):
        since, mixed = load.at, None
        if load.times > 1:
            # Of several starts only the last one's time is kept.
            last, first = before.get(load.host), load.first_at
            since = max([first or load.at, *([last.at] if last else [])])
            mixed = last if last is not None and since == last.at else None
        yield _Period(load, min(since, load.at), ends[number], mixed)
        before[load.host] = load
