"""Why a pair cannot be safe, told from the catalog alone: what `check` has to say about it."""

from matrix.catalog import CATALOG, Pair
from oncemq.contracts.checks import Effects


def refusals(pair: Pair) -> list[tuple[str, str]]:
    """Return (what is wrong, what to write) for every reason against a pair; empty when it is safe."""
    return [
        *_twice_the_same(pair),
        *_wrong_place(pair),
        *_no_memory(pair),
        *_contradiction(pair),
        *_same_row(pair),
    ]


def _names(pair: Pair) -> list[str]:
    return [pair.first, pair.second]


def _twice_the_same(pair: Pair) -> list[tuple[str, str]]:
    if pair.first != pair.second:
        return []
    return [(f"{pair.first} stands in the list twice", "keep one")]


def _wrong_place(pair: Pair) -> list[tuple[str, str]]:
    unfit = [name for name in _names(pair) if pair.effects not in CATALOG[name].effects]
    if pair.effects is Effects.EXTERNAL:
        where, advice = "effects are external", "write effects: database, or a strategy for external effects"
    else:
        where, advice = "effects are in the database", "write effects: external, or another strategy"
    return [(f"strategy {name} cannot work where {where}", advice) for name in unfit]


def _no_memory(pair: Pair) -> list[tuple[str, str]]:
    if any(entry.decides for entry in pair.entries):
        return []
    text = f"{pair.first}, {pair.second} only guards: a lock is no memory of what was applied"
    return [(text, "add one that decides, such as unique_key; or none, if effects may happen twice")]


def _contradiction(pair: Pair) -> list[tuple[str, str]]:
    if "none" not in _names(pair):
        return []
    return [
        (
            f"`none` says that a message may take effect twice, {name} says once",
            f"leave out `none`, or {name}",
        )
        for name in dict.fromkeys(_names(pair))
        if name != "none" and CATALOG[name].decides
    ]


def _same_row(pair: Pair) -> list[tuple[str, str]]:
    if set(_names(pair)) != {"tiered", "unique_key"}:
        return []
    text = (
        "tiered and unique_key keep the same row of each message, so the later of the two would take every message "
        "for a duplicate of itself"
    )
    return [(text, "leave out unique_key: tiered is unique_key with caches before it")]
