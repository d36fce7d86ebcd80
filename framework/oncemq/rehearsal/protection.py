"""Decides whether records of the old strategies still find duplicates after the change."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from oncemq.config.model.consumer_settings import ConsumerSettings
from oncemq.rehearsal.meaning import meaning_of, recorded_meaning
from oncemq.rehearsal.recording_file import Recording

PROCESSED: Final = "oncemq_processed"
_LEDGER: Final = {
    "unique_key": PROCESSED,
    "tiered": PROCESSED,
    "state_machine": "oncemq_states",
    "sequence": "oncemq_sequences",
    "two_phase": "oncemq_claims",
    "redis_flag": "Redis",
}
_BY_IDENTITY: Final = (PROCESSED, "oncemq_claims", "Redis")
_COLUMNS: Final = {"state_machine": "state", "optimistic_lock": "version"}


@dataclass
class Protection:
    """What the records of the old strategies are still worth.

    Attributes:
        identities: a message that was applied before the change is found by its identity.
        stores: strategies that find the places of keys as they were.
        problems: why messages that were applied before the change may run again; empty if none can.
        words: what still counts.
    """

    identities: bool = False
    stores: set[str] = field(default_factory=set)
    problems: list[str] = field(default_factory=list)
    words: list[str] = field(default_factory=list)


def protection_of(
    recording: Recording,
    settled: ConsumerSettings,
    declared: Sequence[tuple[str, Mapping[str, Any]]],
    scopes: Sequence[str],
    database: str,
) -> Protection:
    """Return what the records of the old strategies are worth under the new ones.

    Args:
        recording: has the old configuration.
        settled: the new one.
        declared: the new strategies as declared, by name.
        scopes: ledger scopes under which the new consumer looks for records.
        database: the new database's mark; empty if there is none.
    """
    found = Protection(problems=_moved(recording, scopes, database))
    if found.problems:
        return found
    old = {
        _place(name, options): name for name, options in recording.header["declared"].get("strategies") or ()
    }
    reasons: list[str] = []
    for name, options in declared:
        place = _place(name, options)
        why_not = _why_not(name, place, old, recording, settled) if place else ""
        if why_not:
            reasons.append(why_not)
        elif place:
            found.stores.add(name)
            found.words.append(
                f"{name} finds what {old[place]} has recorded in {place}"
                if place in old
                else f"{name} decides by {place}, as your handlers have left it"
            )
            found.identities = found.identities or place == PROCESSED
    if not found.stores:
        found.problems = reasons or ["the new strategies keep no records"]
    return found


def _moved(recording: Recording, scopes: Sequence[str], database: str) -> list[str]:
    """Return why no record at all is found."""
    header, moved = recording.header, []
    if header.get("database") and database != header["database"]:
        moved.append("the app has another database, in which there are no records")
    if header["scope"] not in scopes:
        moved.append(
            f"records belong to {header['scope']}, and the consumer looks for those of {scopes[0]}: write "
            "formerly: and the name from before"
        )
    return moved


def _why_not(
    name: str, place: str, old: Mapping[str, str], recording: Recording, settled: ConsumerSettings
) -> str:
    """Return why a strategy does not find what was there before; empty if it does."""
    before, now = recorded_meaning(recording), meaning_of(settled)
    if place not in old:
        if "." in place:
            return ""
        return f"{name} looks into {place}, where {_names(old)} has written nothing"
    if place in _BY_IDENTITY:
        if before.identity == now.identity:
            return ""
        was, is_ = _listed(before.identity), _listed(now.identity)
        return f"a message's identity was {was} and is {is_}, so no record is found"
    if before.key == now.key:
        return ""
    return f"{name} finds its rows by the key, which was {before.key} and is {now.key}"


def _place(name: str, options: Mapping[str, Any]) -> str:
    """Return where a strategy's records are: a table of the ledger, or the user's column."""
    entity = options.get("entity")
    if name in _COLUMNS and isinstance(entity, Mapping):
        return f"{entity.get('table')}.{entity.get(_COLUMNS[name])}"
    if name == "unique_key" and "table" in options:
        return f"{options['table']}.{', '.join(dict(options.get('columns') or {}))}"
    return _LEDGER.get(name, "")


def _names(old: Mapping[str, str]) -> str:
    return ", ".join(name for place, name in old.items() if place) or "the old configuration"


def _listed(parts: Sequence[str]) -> str:
    return f"[{', '.join(parts)}]"
