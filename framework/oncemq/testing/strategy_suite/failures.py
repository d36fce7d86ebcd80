"""Failing handlers: a message that is not final leaves nothing, its neighbours commit."""

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy.orm import Session

from oncemq.contracts.verdict import Outcome
from oncemq.errors import Reject, Retry
from oncemq.testing.strategy_suite import effects
from oncemq.testing.strategy_suite.base import SuitePart
from oncemq.testing.strategy_suite.bench import Bench, message
from oncemq.testing.strategy_suite.chain_spec import ChainSpec

Fail = Callable[[Any, Session], None]


def _fail_before(body: Any, session: Session) -> None:  # noqa: ARG001 - a handler's signature
    raise RuntimeError("not today")


def _fail_after(body: Any, session: Session) -> None:
    effects.add(session, "failed", body)
    session.flush()
    raise RuntimeError("not today")


def _ask_again(body: Any, session: Session) -> None:  # noqa: ARG001 - a handler's signature
    raise Retry("not yet")


def _refuse(body: Any, session: Session) -> None:  # noqa: ARG001 - a handler's signature
    raise Reject("never")


_RAISING = (_fail_before, _fail_after)

FAILURES = [
    pytest.param(_fail_before, Outcome.RETRY, id="before-writing"),
    pytest.param(_fail_after, Outcome.RETRY, id="after-writing"),
    pytest.param(_ask_again, Outcome.RETRY, id="retry"),
    pytest.param(_refuse, Outcome.REJECT, id="reject"),
]


class Failures(SuitePart):
    """A failed message can run again (rule 8)."""

    @pytest.mark.parametrize(("fail", "outcome"), FAILURES)
    def test_a_failed_message_runs_when_it_comes_again(
        self, bench: Bench, fail: Fail, outcome: Outcome
    ) -> None:
        """A failure, a retry and a rejection that is replayed are no duplicates."""
        bench.handler = fail
        assert bench.deliver(message("a", 1)) == [outcome]
        bench.handler = bench.apply
        assert bench.deliver(message("a", 1)) == [Outcome.PROCEED]
        assert bench.effects() == [("a", 1)]

    @pytest.mark.parametrize(("fail", "outcome"), FAILURES)
    def test_a_failed_message_leaves_nothing_behind(
        self, bench: Bench, chain: ChainSpec, fail: Fail, outcome: Outcome
    ) -> None:
        """No row in any table of the strategies, no effect; except a record of doubt, where the chain doubts."""
        bench.handler = fail
        assert bench.deliver(message("a", 1), message("b", 1)) == [outcome] * 2
        assert bench.traces() == (2 if chain.doubts and fail in _RAISING else 0)
        assert bench.effects() == []

    @pytest.mark.parametrize(("fail", "outcome"), FAILURES)
    def test_neighbours_of_a_failed_message_commit(self, bench: Bench, fail: Fail, outcome: Outcome) -> None:
        """Healthy messages before and after it take effect, once."""

        def handler(body: Any, session: Session) -> None:
            (fail if body["id"] == "bad" else bench.apply)(body, session)

        bench.handler = handler
        unit = [message("a", 1), message("bad", 1), message("b", 1)]
        assert bench.deliver(*unit) == [Outcome.PROCEED, outcome, Outcome.PROCEED]
        assert bench.deliver(*unit) == [Outcome.DUPLICATE, outcome, Outcome.DUPLICATE]
        assert sorted(bench.effects()) == [("a", 1), ("b", 1)]

    def test_a_later_copy_runs_when_the_first_was_rejected(self, bench: Bench) -> None:
        """A rejection is not an effect: the copy behind it in the same unit has its own try."""
        tries = []

        def handler(body: Any, session: Session) -> None:
            tries.append(body)
            if len(tries) == 1:
                raise Reject("the first one")
            bench.apply(body, session)

        bench.handler = handler
        assert bench.deliver(message("a", 1, 5), message("a", 1, 5)) == [Outcome.REJECT, Outcome.PROCEED]
        assert bench.deliver(message("a", 1, 5)) == [Outcome.DUPLICATE]
        assert bench.effects() == [("a", 1)]

    def test_successors_wait_for_a_retried_message(self, bench: Bench) -> None:
        """After a retry the key's later messages go back unstarted, and leave nothing."""

        def handler(body: Any, session: Session) -> None:
            if body["n"] == 1:
                raise Retry("not yet")
            bench.apply(body, session)

        bench.handler = handler
        assert bench.deliver(message("a", 1), message("a", 2)) == [Outcome.RETRY, Outcome.RETURNED]
        assert bench.traces() == 0

    def test_handlers_see_the_payload_as_it_was_sent(self, bench: Bench) -> None:
        """Changes of a handler to its payload change neither decisions nor records."""

        def handler(body: Any, session: Session) -> None:
            bench.apply(body, session)
            body.clear()

        bench.handler = handler
        assert bench.deliver(message("a", 1), message("a", 2)) == [Outcome.PROCEED] * 2
        assert bench.deliver(message("a", 2), message("a", 3)) == [Outcome.DUPLICATE, Outcome.PROCEED]
