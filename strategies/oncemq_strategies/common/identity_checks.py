"""Checks the identity of processed messages' records, for every strategy that keeps them."""

from collections.abc import Iterable

from oncemq.common.problems import Problem, Severity
from oncemq.contracts.checks import ConsumerFacts, Effects

_ORDERING = frozenset({"state_machine", "sequence", "optimistic_lock"})


def check_transactional(facts: ConsumerFacts, name: str) -> Iterable[Problem]:
    """Yield why strategy `name` cannot protect the handler's effects."""
    if facts.effects is Effects.EXTERNAL:
        yield Problem(
            f"{name} protects what is in the handler's database transaction; effects outside are not",
            "use two_phase or redis_flag for `effects: external`",
            "strategies",
        )
    elif not facts.dialect:
        yield Problem(f"{name} needs a database", "give the app a `database`", "strategies")


def check_records(facts: ConsumerFacts, name: str) -> Iterable[Problem]:
    """Yield where records of strategy `name` would take new messages for old ones."""
    if not (facts.identity or facts.has_version or _ORDERING.intersection(facts.strategies)):
        yield Problem(
            f"nothing tells two messages of one key apart, so {name} takes every later one for a duplicate of the first",
            "declare `version` or `identity`, such as [body.order_id, body.payment_no]; or identity: key, if a key has "
            "only one message",
            "identity",
            Severity.WARNING,
        )
    ordering = sorted(_ORDERING.intersection(facts.strategies))
    if ordering and (facts.identity == ("key",) or not (facts.identity or facts.has_version)):
        yield Problem(
            f"{name} would take every later message of a key for a duplicate before {ordering[0]} sees it: "
            "without a version, the identity is the key alone",
            "declare the topic's `version`, or an `identity` such as [body.ride_id, body.status]",
            "identity",
        )
