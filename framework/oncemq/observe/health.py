"""Health and readiness of an app: its expected consumers are subscribed and making progress.

Healthy asks whether restarting this process would help; ready asks whether it does its work now. A database or a broker
that is away, and a missing table, make an app not ready but leave it healthy: a probe that restarts all processes then
makes the outage longer. A consumer that has messages and settles none makes it both unhealthy and not ready.
"""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from oncemq.common.redaction import Redactor, escape
from oncemq.ledger.coordination.pauses import Pause
from oncemq.observe.state import AppState, ConsumerState, PauseReason, Phase

_ORDERED = frozenset({PauseReason.ASKED, PauseReason.BREAKER})
STUCK_AFTER = timedelta(minutes=1)
"""How long a consumer may have messages and settle none."""


@dataclass(frozen=True, slots=True)
class Report:
    """Answer to a health or readiness probe.

    Args:
        ok: the answer.
        phase: of the app's life cycle.
        problems: one line for each reason why not.
        consumers: each consumer's row, ready for JSON.
    """

    ok: bool
    phase: Phase
    problems: tuple[str, ...]
    consumers: tuple[dict[str, Any], ...]

    def as_json(self) -> dict[str, Any]:
        """Return the JSON of `/healthz` and `/readyz`."""
        return {
            "ok": self.ok,
            "phase": self.phase.value,
            "problems": list(self.problems),
            "consumers": list(self.consumers),
        }


def health(state: AppState, now: float, stuck_after: timedelta = STUCK_AFTER) -> Report:
    """Return whether no consumer is stuck; an app that starts or drains is healthy, and one whose servers are away.

    Args:
        state: the app at this moment.
        now: monotonic seconds, of the same clock as `last_progress`.
        stuck_after: how long a consumer may have messages and settle none.
    """
    problems: list[str] = []
    if state.phase is Phase.STOPPED:
        problems.append("the app has stopped")
    if state.phase is Phase.RUNNING:
        problems += _none_expected(state)
        for row in state.consumers:
            problems += _ill(row, now, stuck_after)
    return _report(state, now, problems)


def readiness(state: AppState, now: float, stuck_after: timedelta = STUCK_AFTER) -> Report:
    """Return whether every expected consumer is subscribed and does its work now.

    Args:
        state: the app at this moment.
        now: monotonic seconds, of the same clock as `last_progress`.
        stuck_after: how long a consumer may have messages and settle none.
    """
    problems = [] if state.phase is Phase.RUNNING else [f"the app is {state.phase.value}"]
    problems += _none_expected(state)
    if state.database_silent is not None:
        problems.append(f"the database has not answered for {state.database_silent:.0f} s")
    for row in state.consumers:
        if row.paused in _ORDERED:
            continue  # what it was told to do; a rollout must not wait for its end
        if row.paused is not None:
            problems.append(f"consumer {row.consumer} is paused ({row.paused.value}){_detail(row)}")
        elif not row.subscribed:
            problems.append(f"consumer {row.consumer} is not subscribed{_detail(row)}")
        else:
            problems += _stuck(row, now, stuck_after)
    return _report(state, now, problems)


def _none_expected(state: AppState) -> list[str]:
    return [] if state.consumers else ["no consumer is expected to run"]


def _ill(row: ConsumerState, now: float, stuck_after: timedelta) -> list[str]:
    if row.paused is PauseReason.STRATEGY_BUG:
        return [f"consumer {row.consumer} is paused until the cause is removed ({row.paused}){_detail(row)}"]
    if row.paused is not None or not row.subscribed:
        return []
    return _stuck(row, now, stuck_after)


def _stuck(row: ConsumerState, now: float, stuck_after: timedelta) -> list[str]:
    still = now - row.last_progress
    if row.waiting and still > stuck_after.total_seconds():
        return [f"consumer {row.consumer} has {row.waiting} messages and settled none for {still:.0f} s"]
    return []


def _detail(row: ConsumerState) -> str:
    return f": {_safe(row.detail)}" if row.detail else ""


def _safe(text: str) -> str:
    return escape(Redactor()(text))


def _report(state: AppState, now: float, problems: list[str]) -> Report:
    rows = tuple(_row(row, now) for row in state.consumers)
    return Report(not problems, state.phase, tuple(problems), rows)


def _pause(pause: Pause) -> dict[str, Any]:
    return {
        "kind": pause.kind,
        "who": _safe(pause.who),
        "why": _safe(pause.why),
        "since": pause.since.isoformat(),
        "until": None if pause.until is None else pause.until.isoformat(),
    }


def _row(row: ConsumerState, now: float) -> dict[str, Any]:
    return {
        "consumer": row.consumer,
        "subscribed": row.subscribed,
        "paused": None if row.paused is None else row.paused.value,
        "waiting": row.waiting,
        "in_flight": row.in_flight,
        "depth": row.depth,
        "seconds_since_progress": round(max(0.0, now - row.last_progress), 1),
        "exclusive": row.exclusive,
        "detail": _safe(row.detail),
        "pauses": [_pause(pause) for pause in row.pauses],
        "breakers": {
            breaker.kind: {"phase": breaker.phase, "share": breaker.share} for breaker in row.breakers
        },
    }
