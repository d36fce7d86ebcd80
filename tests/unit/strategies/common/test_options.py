"""Options that cannot work are refused at start, in words that say what to write."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from oncemq import App
from oncemq.common.problems import Problem, Severity
from oncemq.contracts.checks import ConsumerFacts, Effects
from oncemq.contracts.strategy import Scope
from oncemq.errors import ConfigError
from oncemq_strategies.none import NoStrategy
from oncemq_strategies.precondition import Precondition
from oncemq_strategies.state_machine.strategy import StateMachine
from oncemq_strategies.unique_key.strategy import UniqueKey

MakeFacts = Callable[..., ConsumerFacts]

TABLE = {"table": "payments", "columns": {"order_id": "body.id"}}
ENTITY = {"table": "rides", "key": "id", "state": "status"}
LINE = {"to": "body.to", "states": ["a", "b"]}

WRONG = [
    (UniqueKey, {"fingerprints": ["body.a"]}, "did you mean 'fingerprint'"),
    (UniqueKey, {"fingerprint": []}, "unique_key.fingerprint: .*list of texts"),
    (UniqueKey, {"fingerprint": ["nothing.a"]}, "unique_key.fingerprint"),
    (UniqueKey, {"result": "yes"}, "neither true nor false"),
    (UniqueKey, {"table": "payments"}, "columns must be a mapping"),
    (UniqueKey, {"columns": {"a": "body.a"}}, "table must be a text"),
    (UniqueKey, {**TABLE, "result": True}, "cannot go with `table`"),
    (UniqueKey, {"required": False}, "missing"),
    (UniqueKey, {**TABLE, "table": "payments; DROP TABLE users"}, "not a usable name"),
    (UniqueKey, {**TABLE, "columns": {'a" OR 1=1 --': "body.a"}}, "not a usable name"),
    (UniqueKey, {**TABLE, "table": "a.b.c"}, "not a usable name"),
    (StateMachine, {"states": ["a"]}, "to must be a text"),
    (StateMachine, {"to": "body.to"}, "either `states`"),
    (StateMachine, {**LINE, "transitions": {"a": ["b"]}}, "either `states`"),
    (StateMachine, {**LINE, "states": ["a", "b", "a"]}, "'a' stands there twice"),
    (StateMachine, {**LINE, "initial": ["a"]}, "begins with its first state"),
    (StateMachine, {**LINE, "early": "park", "park_limit": 0}, "no place to wait"),
    (StateMachine, {**LINE, "early": "run", "park_limit": 5}, "nothing is parked"),
    (StateMachine, {**LINE, "early": "retri"}, "did you mean 'retry'"),
    (StateMachine, {**LINE, "stats": 1}, "did you mean 'states'"),
    (StateMachine, {"to": "body.to", "transitions": {"a": ["b"], "b": ["a"]}}, "add `initial"),
    (StateMachine, {"to": "body.to", "transitions": {"a": 5}}, "must list the states"),
    (StateMachine, {**LINE, "entity": {**ENTITY, "state": "x-y"}}, "not a usable name"),
    (StateMachine, {**LINE, "entity": {**ENTITY, "missing": "create"}}, "not possible here"),
    (StateMachine, {**LINE, "entity": {**ENTITY, "keys": "id"}}, "did you mean 'key'"),
    (NoStrategy, {"anything": 1}, "unknown option"),
]


@pytest.mark.parametrize(("strategy", "options", "words"), WRONG)
def test_wrong_options_are_refused(strategy: Any, options: Any, words: str, scope: Scope) -> None:
    """Every mistake has words of its own."""
    with pytest.raises(ConfigError, match=words):
        strategy.build(options, scope)


def problems(found: Iterable[Problem]) -> str:
    """Return the problems as text."""
    return "\n".join(map(str, found))


def test_a_sound_consumer_has_no_problems(scope: Scope, facts: MakeFacts) -> None:
    """The usual chains are fine."""
    assert problems(UniqueKey.build({}, scope).check(facts(identity=("body.id",)))) == ""
    chain = ("unique_key", "state_machine")
    assert problems(UniqueKey.build({}, scope).check(facts(strategies=chain, has_version=True))) == ""
    assert (
        problems(UniqueKey.build({}, scope).check(facts(strategies=chain, identity=("body.a", "body.b"))))
        == ""
    )
    assert problems(StateMachine.build(LINE, scope).check(facts(strategies=("state_machine",)))) == ""
    assert problems(NoStrategy.build({}, scope).check(facts(strategies=("none",), dialect=""))) == ""


def test_short_retention_is_reported_once(tmp_path: Path) -> None:
    """Records must outlive the last retry; the app says so for every strategy, and none repeats it."""
    app = App(
        "shop",
        brokers={"main": f"embedded:///{tmp_path}/broker.db"},
        database=f"sqlite:///{tmp_path}/shop.db",
    )
    app.topic("orders", key="body.id", identity="body.number", strategies=["unique_key"])

    @app.consumer(topic="orders", keep="1m")
    def pay(body: dict) -> None:
        """Do nothing."""

    with pytest.raises(ConfigError) as caught:
        app.check()
    assert str(caught.value).count("records are kept for 1m") == 1
    assert "keep:" in str(caught.value)


@pytest.mark.parametrize("identity", [(), ("key",)])
def test_identity_equal_to_key_is_refused_where_order_matters(
    scope: Scope, facts: MakeFacts, identity: tuple[str, ...]
) -> None:
    """Otherwise every later event of a ride were a duplicate of its first."""
    chain = facts(strategies=("unique_key", "state_machine"), identity=identity)
    assert "declare the topic's `version`" in problems(UniqueKey.build({}, scope).check(chain))


@pytest.mark.parametrize(
    "strategy", [UniqueKey.build, lambda _options, scope: StateMachine.build(LINE, scope)]
)
def test_effects_outside_the_database_are_refused(strategy: Any, scope: Scope, facts: MakeFacts) -> None:
    """A database transaction does not take back a mail."""
    assert "two_phase" in problems(strategy({}, scope).check(facts(effects=Effects.EXTERNAL)))
    assert "database" in problems(strategy({}, scope).check(facts(dialect="")))


def test_none_contradicts_strategies_that_decide(scope: Scope, facts: MakeFacts) -> None:
    """Twice and once cannot both be meant; unknown names and guards are not its business."""
    chain = facts(strategies=("none", "unique_key", "my_own"))
    assert problems(NoStrategy.build({}, scope).check(chain)).count("leave out `none`") == 1


@pytest.mark.parametrize(
    "transitions",
    [
        {"open": ["busy"], "busy": ["open"]},
        {"open": ["open"]},
        {"new": ["a"], "a": ["b"], "b": ["c"], "c": ["a"]},
    ],
    ids=["back", "itself", "round"],
)
def test_states_that_come_back_need_a_memory(scope: Scope, facts: MakeFacts, transitions: Any) -> None:
    """Else a copy of an old message would run again."""
    built = StateMachine.build({"to": "body.to", "transitions": transitions, "initial": ["open"]}, scope)
    assert "come back to a state" in problems(built.check(facts(strategies=("state_machine",))))
    known = facts(strategies=("unique_key", "state_machine"), has_version=True)
    assert "come back" not in problems(built.check(known))


def test_the_key_alone_as_identity_is_warned_about(scope: Scope, facts: MakeFacts) -> None:
    """It is right where a key has one message only; said aloud, it is accepted."""
    told = list(UniqueKey.build({}, scope).check(facts()))
    assert [problem.severity for problem in told] == [Severity.WARNING]
    assert "identity: key" in told[0].advice
    for declared in ({"identity": ("key",)}, {"identity": ("body.id",)}, {"has_version": True}):
        assert problems(UniqueKey.build({}, scope).check(facts(**declared))) == ""


def test_a_precondition_alone_is_warned_about(scope: Scope, facts: MakeFacts) -> None:
    """It does not know copies."""
    options = {"entity": {"table": "t", "key": "k"}, "where": {"n": "body.n"}}
    alone = Precondition.build(options, scope)
    assert "no memory" in problems(alone.check(facts(strategies=("precondition",))))
    assert "no memory" not in problems(alone.check(facts(strategies=("unique_key", "precondition"))))
