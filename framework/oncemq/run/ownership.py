"""Makes sure that no other consumer of any app with the same ledger owns what this app is about to consume.

Records of what was applied belong to a consumer's name, messages to its group: with two owners of one group, copies of
one message are applied by both. A column by whose values a strategy decides belongs to one consumer of a topic, too:
the first one to come moves it, and another one would find every message done.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from oncemq.errors import ConfigError
from oncemq.ledger import groups
from oncemq.ledger.connect import READ_ONLY
from oncemq.ledger.groups import Owned
from oncemq.naming import NamingAdapter, names_of
from oncemq.run.plan import AppPlan, ConsumerPlan

_COLUMN: Final = "column "
"""What the names of columns begin with, and those of no queue or group."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What the ledger says about an app's groups.

    Args:
        conflicts: places with another owner; nothing may start.
        warnings: places of the same name on a broker with another address, which may be the same broker.
    """

    conflicts: Sequence[str] = ()
    warnings: Sequence[str] = ()


def places_of(plan: AppPlan, consumer: str | None = None) -> list[Owned]:
    """Return the places that the app's consumers (or one of them) need for themselves."""
    found = []
    for one in plan.consumers:
        if consumer not in (None, one.name):
            continue
        private = names_of(plan.adapters[one.broker], one.broker, one.subscription)
        if private is not None:
            found += [
                Owned(name, private.broker, one.scope) for name in (*private.names, *_columns(plan, one))
            ]
    return [groups.stored(place) for place in found]


def look(plan: AppPlan) -> Finding:
    """Return what the ledger says now; changes nothing."""
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


def own(plan: AppPlan) -> Sequence[str]:
    """Note this app's consumers as owners of their groups; returns what a person should know.

    Raises:
        ConfigError: something has another owner.
    """
    places = places_of(plan)
    if plan.engine is None or not places:
        return ()
    finding = look(plan)
    if not finding.conflicts:
        with plan.engine.begin() as connection:
            groups.enter(connection, places, plan.clock.now())
        # Another app may have come first meanwhile.
        finding = look(plan)
    if finding.conflicts:
        raise ConfigError(finding.conflicts)
    return finding.warnings


def _columns(plan: AppPlan, consumer: ConsumerPlan) -> list[str]:
    """Return the columns by which a consumer decides; none where nothing tells whether two brokers are one."""
    if not isinstance(plan.adapters[consumer.broker], NamingAdapter):
        return []
    owned = [column for strategy in consumer.strategies for column in strategy.owns()]
    return [f"{_COLUMN}{column} for topic {consumer.subscription.topic}" for column in owned]


def _conflict(place: Owned, other: Owned) -> str:
    if place.name.startswith(_COLUMN):
        return (
            f"{place.owner} cannot decide by {place.name} at {place.broker}: it belongs to {other.owner} (app.consumer), "
            "and whichever comes first moves it, so that the other skips the message – give it a column of its own, "
            "leave its `entity` out where the ledger can keep the state for each consumer, or write strategies: "
            "[unique_key]; or, if the other was renamed or ended, stop it and run `oncemq groups take`"
        )
    return (
        f"{place.owner} cannot use {place.name} at {place.broker}: it belongs to {other.owner} (app.consumer), and copies "
        "of what both receive would be applied twice – give it a group: (or queue:) of its own; or, if the other was "
        "renamed or ended, stop it and run `oncemq groups take`"
    )


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
