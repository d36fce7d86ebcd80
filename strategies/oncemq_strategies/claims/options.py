"""Options common to all strategies with claims."""

from datetime import timedelta

from oncemq.common.durations import format_duration
from oncemq.contracts.verification import Verify
from oncemq_strategies.common.options import Options

USUAL_LEASE = timedelta(seconds=60)
_SHORTEST_LEASE = timedelta(seconds=1)


def lease_option(given: Options) -> timedelta:
    """Return the option `lease`: how long an unrenewed claim is respected."""
    lease = given.duration("lease") or USUAL_LEASE
    if lease < _SHORTEST_LEASE:
        given.refuse(
            f"{format_duration(lease)} is over before it can be renewed",
            f"write {format_duration(_SHORTEST_LEASE)} or longer; {format_duration(USUAL_LEASE)} is usual",
            name="lease",
        )
    return lease


def verify_option(given: Options) -> Verify | None:
    """Return the function named by the option `verify`; None if not given."""
    if not given.has("verify"):
        return None
    verify: Verify = given.imported("verify")
    if not callable(verify):
        given.refuse(
            f"{verify!r} is not a function", "name one: def verify(envelope: Envelope)", name="verify"
        )
    return verify
