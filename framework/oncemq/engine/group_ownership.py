"""Makes sure that no consumer of another app with the same ledger owns the groups of this app.

Records of applied messages belong to a consumer's name, messages to its group: with two owners of one group, copies of
one message are applied by both. A column that a strategy decides by belongs to one consumer of a topic, too:
the first consumer changes it, and another one would find every message done.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, TypeVar

from sqlalchemy import Connection, Engine, MetaData
from sqlalchemy.exc import SQLAlchemyError

from oncemq.contracts.broker_queries import NamingAdapter, names_of
from oncemq.contracts.moving import LedgerMove
from oncemq.contracts.strategy import Strategy
from oncemq.engine.plan import AppPlan, ConsumerPlan
from oncemq.errors import ConfigError
from oncemq.ledger import renames
from oncemq.ledger.coordination import groups
from oncemq.ledger.coordination.broadcast import consumer_of
from oncemq.ledger.coordination.groups import Owned
from oncemq.ledger.database.connect import READ_ONLY
from oncemq.ledger.database.connect import place as where_is
from oncemq.ledger.generations import rotation
from oncemq.ledger.messages import parking
from oncemq.ledger.renames import Left

T = TypeVar("T")

_COLUMN: Final = "column "
"""Prefix of the names of columns; never of a queue or group."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Ownership of an app's groups according to the ledger.

    Args:
        conflicts: places with another owner; the app must not start.
        warnings: places with the same name on a broker with another address, which may be the same broker.
    """

    conflicts: Sequence[str] = ()
    warnings: Sequence[str] = ()


def places_of(plan: AppPlan, consumer: str | None = None) -> list[Owned]:
    """Return the places that the app's consumers (or one of them) need exclusively."""
    found = []
    for planned in plan.consumers:
        if consumer not in (None, planned.name):
            continue
        private = names_of(plan.adapters[planned.broker], planned.broker, planned.subscription)
        if private is not None:
            found += [
                # Instances of a broadcast consumer have one group.
                Owned(name, private.broker, consumer_of(planned.scope))
                for name in (*private.names, *_columns(plan, planned))
            ]
    return [groups.stored(place) for place in found]


def look(plan: AppPlan) -> Finding:
    """Return the current ownership; read-only."""
    places = places_of(plan)
    if plan.engine is None or not places:
        return Finding()
    with plan.engine.connect().execution_options(**{READ_ONLY: True}) as connection:
        known = groups.owners(connection, [place.name for place in places])
    conflicts: dict[str, None] = {}
    warnings: dict[str, None] = {}
    for place in places:
        for other in known:
            if other.name != place.name or other.owner == place.owner:
                continue
            if other.broker == place.broker:
                conflicts[_conflict(place, other)] = None
            elif not other.owner.startswith(f"{plan.name}."):
                warnings[_warning(place, other)] = None
    return Finding(tuple(conflicts), tuple(warnings))


def carry_over(plan: AppPlan) -> Sequence[str]:
    """Transfer the ledger rows of each consumer's other names to it; returns a line for each.

    Only names used before `formerly` was written have rows of their own.
    """
    lines = []
    for consumer in plan.consumers:
        for former in consumer.other_scopes:
            moved = 0
            for engine in plan.engines:
                if consumer.generations is not None:
                    moved += rotation.adopt(engine, former, consumer.scope)
                with engine.begin() as connection:
                    if renames.holds(connection, former):
                        moved += renames.move(connection, former, consumer.scope)
            if moved:
                lines.append(
                    f"{consumer.name}: what the ledger held under {former} is kept under {consumer.scope} now"
                )
    return lines


def left_names(plan: AppPlan) -> list[Left]:
    """Return remains in ledger and brokers for names of this app that no consumer has or reads any more; read-only."""
    if plan.engine is None:
        return []
    known = {
        consumer_of(scope)
        for consumer in plan.consumers
        for scope in (consumer.scope, *consumer.other_scopes)
    }
    read = {_without_tags(place.name) for place in places_of(plan)}
    found: dict[str, Left] = {}
    for engine in plan.engines:
        with engine.connect().execution_options(**{READ_ONLY: True}) as connection:
            for scope in renames.scopes(connection, plan.name):
                mine = consumer_of(scope) in known
                left = renames.left_by(connection, scope, rows=not mine)
                unread = tuple(
                    place
                    for place in left.places
                    if _without_tags(place.name) not in read and not (mine and is_column(place))
                )
                if not mine or unread:
                    here = Left(scope, left.rows, unread, gone=not mine)
                    found[scope] = _added(found.get(scope), here)
    return list(found.values())


def in_words(left: Left) -> str:
    """Return the remains of a name that no consumer has or reads any more, and what to do."""
    name = left.scope.partition(".")[2]
    places = [
        f"{place.name} at {place.broker}, which no consumer reads"
        for place in left.places
        if not is_column(place)
    ]
    if not left.gone:
        return (
            f"consumer {name} once read what it reads no more: {', '.join(places)} – "
            f"remove it: `oncemq tables prune {name}`"
        )
    rows = [
        f"{count:,}{' or more' if count >= renames.MOST_COUNTED else ''} {noun}{'' if count == 1 else 's'}"
        for noun, count in left.rows.items()
    ]
    return (
        f"no consumer of this app is called {name}, and there is left of it: {', '.join([*rows, *places]) or 'its history'} – "
        f"write formerly: {name} at the consumer that it became, or remove it: `oncemq tables prune {name}`"
    )


def is_column(place: Owned) -> bool:
    """Return whether only a column of the user's is owned, and nothing on a broker."""
    return place.name.startswith(_COLUMN)


def _without_tags(name: str) -> str:
    return name.partition(" (tags ")[0]


def _added(known: Left | None, other: Left) -> Left:
    if known is None:
        return other
    rows = {noun: known.rows.get(noun, 0) + other.rows.get(noun, 0) for noun in {**known.rows, **other.rows}}
    return replace(known, rows=rows, places=tuple(dict.fromkeys((*known.places, *other.places))))


def _first_start(plan: AppPlan, known: Sequence[Owned]) -> Sequence[str]:
    """Return warnings for a consumer that starts for the first time while unused names remain."""
    owners = {place.owner for place in known}
    new = [consumer.name for consumer in plan.consumers if consumer_of(consumer.scope) not in owners]
    if not new:
        return ()
    try:
        left_behind = left_names(plan)
    except SQLAlchemyError:
        # An unavailable shard blocks only its own keys.
        return ()
    return [
        f"{', '.join(new)} starts without records of what was applied; {in_words(left)}"
        for left in left_behind
        if left.gone
    ]


def own(plan: AppPlan) -> Sequence[str]:
    """Record this app's consumers as owners of their groups; returns what a person should know.

    Raises:
        ConfigError: something has another owner.
    """
    places = places_of(plan)
    if plan.engine is None:
        return ()
    lines = list(carry_over(plan)) if places else []
    lines += _stranded(plan)
    if rows := unseen_rows(plan):
        raise ConfigError(rows)
    if not places:
        return ()
    finding = look(plan)
    if not finding.conflicts:
        with plan.engine.connect().execution_options(**{READ_ONLY: True}) as connection:
            known = groups.owners(connection, [place.name for place in places])
        lines += _first_start(plan, known)
        with plan.engine.begin() as connection:
            groups.enter(connection, places, plan.clock.now())
        # Another app may have been faster.
        finding = look(plan)
    if finding.conflicts:
        raise ConfigError(finding.conflicts)
    return [*finding.warnings, *lines]


def _stranded(plan: AppPlan) -> Iterator[str]:
    """Yield warnings about parked messages of topics that a consumer of several topics does not read any more."""
    topics = dict[str, list[ConsumerPlan]]()
    for consumer in plan.consumers:
        if consumer.fans_in:
            topics.setdefault(consumer.scope, []).append(consumer)
    for scope, parts in topics.items():
        ask = partial(parking.besides, consumer=scope, topics=[part.subscription.topic for part in parts])
        for engine in plan.engines:
            left = _asked(plan, engine, ask, dict[str, int]())
            for topic, count in left.items():
                yield (
                    f"{parts[0].called}: {count} parked message(s) of topic {topic!r} wait in the ledger, and no consumer reads that "
                    f"topic any more: add it to topics: of {parts[0].called} until they are done"
                )


def ledger_moves(plan: AppPlan, consumer: ConsumerPlan) -> Iterator[tuple[Engine, LedgerMove]]:
    """Yield, with its database, what the ledger may have of a consumer that belongs into a table of the user's."""
    for shard, engine in enumerate(plan.engines):
        strategies = consumer.strategies_on(shard)
        moves = {strategy: strategy.moves() for strategy in strategies}
        for found in moves.values():
            if found is not None and not _is_read(
                found, [each for each in strategies if moves[each] is None]
            ):
                yield engine, found


def _is_read(found: LedgerMove, others: Iterable[Strategy]) -> bool:
    """Return whether another strategy of the consumer still works with those rows of the ledger."""
    return any(found.ledger.name == table.name for each in others for table in each.tables(MetaData()))


def unseen_rows(plan: AppPlan) -> list[str]:
    """Return what the ledger has that a consumer's strategy would not see, and what to do; read-only."""
    lines = []
    for consumer in plan.consumers:
        if consumer.place:
            continue  # its rows are those of the consumer's first topic
        for engine, found in ledger_moves(plan, consumer):
            if _asked(plan, engine, found.left, False):
                lines.append(
                    f"consumer {consumer.name}: the ledger in {where_is(engine)} has {found.what}s of it, and {found.target} is "
                    "read instead: messages that took effect might run again – run "
                    f"`oncemq tables move {consumer.name} --preview`"
                )
    return lines


def _asked(plan: AppPlan, engine: Engine, ask: Callable[[Connection], T], without: T) -> T:
    """Return what a database answers; `without` from a shard that is away, which blocks only its own keys."""
    try:
        with engine.connect().execution_options(**{READ_ONLY: True}) as connection:
            return ask(connection)
    except SQLAlchemyError:
        if plan.layout is None:
            raise
        return without


def _columns(plan: AppPlan, consumer: ConsumerPlan) -> list[str]:
    """Return the columns that a consumer decides by; none where it is unknown whether two brokers are the same."""
    if not isinstance(plan.adapters[consumer.broker], NamingAdapter):
        return []
    owned = [column for strategy in consumer.strategies_on(0) for column in strategy.owns()]
    return [f"{_COLUMN}{column} for topic {consumer.subscription.topic}" for column in owned]


def _conflict(place: Owned, other: Owned) -> str:
    if place.name.startswith(_COLUMN):
        return (
            f"{place.owner} cannot decide by {place.name} at {place.broker}: it belongs to {other.owner} (app.consumer), "
            "and whichever comes first moves it, so that the other skips the message – give it a column of its own, "
            "leave its `entity` out where the ledger can keep the state for each consumer, or write strategies: "
            f"[unique_key]; or, if the other was renamed, write formerly: {_name(other)} at {_name(place)}; or, if it was "
            "ended, stop it and run `oncemq groups take`"
        )
    return (
        f"{place.owner} cannot use {place.name} at {place.broker}: it belongs to {other.owner} (app.consumer), and copies "
        "of what both receive would be applied twice – give it a group: (or queue:) of its own; or, if the other was "
        f"renamed, write formerly: {_name(other)} at {_name(place)}; "
        "or, if it was ended, stop it and run `oncemq groups take`"
    )


def _name(place: Owned) -> str:
    return place.owner.partition(".")[2]


def _warning(place: Owned, other: Owned) -> str:
    if place.name.startswith(_COLUMN):
        return (
            f"{place.owner} decides by {place.name} at {place.broker}, and {other.owner} at {other.broker}: if both "
            "addresses lead to one broker, each skips what the other applied – give one of them a column of its own"
        )
    return (
        f"{place.name} belongs to {place.owner} at {place.broker}, and to {other.owner} at {other.broker}: if both "
        "addresses lead to one broker, messages are applied twice – give one of them a group: of its own"
    )
