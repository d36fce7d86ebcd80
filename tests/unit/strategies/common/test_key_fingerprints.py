"""`fingerprint` of strategies that compare places: the same place with other content is no copy."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from oncemq.config.build.consumer_rules import check_chain
from oncemq.contracts.checks import ConsumerFacts, UnitKind
from oncemq.contracts.strategy import Scope
from oncemq.contracts.verdict import Outcome
from oncemq.errors import ConfigError
from oncemq.message.envelope import Message
from oncemq.testing.strategy_suite.bench import Bench
from oncemq_strategies.optimistic_lock.strategy import OptimisticLock
from oncemq_strategies.sequence.strategy import SequenceStrategy
from oncemq_strategies.state_machine.strategy import StateMachine
from support.database import rides
from support.database.rides import add_point

MakeBench = Callable[..., Bench]
PRINT = {"fingerprint": ["body.amount"]}
OPTIONS: dict[str, dict[str, Any]] = {
    "sequence": PRINT,
    "state_machine": {"to": "body.to", "states": ["s1", "s2", "s3"], **PRINT},
    "optimistic_lock": {"entity": {"table": "rides", "key": "ride_id", "version": "version"}, **PRINT},
}


def event(number: int, amount: int) -> Message:
    """Return message `number` about ride 1."""
    body = {"id": 1, "n": number, "to": f"s{number}", "amount": amount}
    return Message("rides", json.dumps(body).encode())


@pytest.mark.parametrize("name", OPTIONS)
def test_the_same_place_with_other_content_is_a_conflict(
    make_bench: MakeBench, database_url: str, name: str
) -> None:
    """In the same unit and in a later one, also after the key has moved on; a copy stays a duplicate."""
    rides.create(database_url, {"ride_id": 1, "status": "open", "version": 0})
    bench = make_bench(name, OPTIONS[name], handler=add_point)
    assert bench.deliver(event(1, 5), event(1, 6), event(1, 5)) == [
        Outcome.PROCEED,
        Outcome.CONFLICT,
        Outcome.DUPLICATE,
    ]
    assert bench.deliver(event(1, 6)) == [Outcome.CONFLICT]
    assert bench.deliver(event(2, 7)) == [Outcome.PROCEED]
    assert bench.deliver(event(2, 7), event(2, 8)) == [Outcome.DUPLICATE, Outcome.CONFLICT]


def test_one_strategy_of_a_list_compares_content(scope: Scope, facts: Callable[..., ConsumerFacts]) -> None:
    """Two of them would compare with each other's row."""
    chain = [
        SequenceStrategy.build(OPTIONS["sequence"], scope),
        StateMachine.build(OPTIONS["state_machine"], scope),
    ]
    told = check_chain(
        facts(strategies=("sequence", "state_machine"), has_version=True), chain, UnitKind.TRANSACTIONAL
    )
    assert ["keep the fingerprint" in problem.text for problem in told] == [True]


def test_a_message_made_for_the_current_version_has_no_copy_to_compare(scope: Scope) -> None:
    """There a second message is stale, whatever it contains."""
    with pytest.raises(ConfigError, match="no message is a duplicate"):
        OptimisticLock.build({**OPTIONS["optimistic_lock"], "message_version": "current"}, scope)
