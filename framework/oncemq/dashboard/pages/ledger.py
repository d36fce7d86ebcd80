"""Shows what waits in the ledger and needs a person: parked messages, unknown effects, the outbox; and the audit trail."""

from dataclasses import asdict
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from oncemq.dashboard.parameters import WrongParameter, choice, text
from oncemq.dashboard.protection import Form
from oncemq.dashboard.rendering import page
from oncemq.dashboard.site import Site
from oncemq.ledger.database.connect import READ_ONLY
from oncemq.ledger.messages import delayed, outbox_refused, parking
from oncemq.ledger.messages.outbox_refused import Chosen
from oncemq.ledger.records import claims
from oncemq.operate import auditing, outbox
from oncemq.operate.auditing import Operator, Trail
from oncemq.operate.brokers import chosen_consumers, one_each
from oncemq.operate.reconciling import KNOWN, reconciled

_MOST: Final = 100
_MOST_CHANGES: Final = 200


def waiting(request: Request) -> Response:
    """Show parked messages, claims in doubt, refused and delayed messages; the first of each."""
    site: Site = request.app.state.site
    plan, found = site.plan, _Found()
    for engine in plan.engines:
        with engine.connect().execution_options(**{READ_ONLY: True}) as connection:
            for consumer in plan.consumers:
                mine = {"consumer": consumer.name}
                parked = parking.listed(connection, consumer.scope, _MOST, consumer.only_topic)
                found.parked += [mine | row for row in parked]
                if consumer not in one_each(plan.consumers):
                    continue
                doubtful = claims.listed_in_doubt(connection, consumer.scope, plan.clock.now(), _MOST)
                found.claims += [mine | row for row in doubtful]
            for row in (*found.parked, *found.claims):
                if row.get("reason"):
                    row["reason"] = plan.redact(str(row["reason"]))
            found.refused += outbox_refused.listed(connection, plan.name, Chosen(), _MOST)
            found.later += delayed.listed(connection, plan.name, Chosen(), _MOST)
    values = {"found": found, "most": _MOST}
    return page(request, "waiting.html", values, title="waiting messages")


class _Found:
    """Rows by what they are."""

    def __init__(self) -> None:
        self.parked: list[dict[str, Any]] = []
        self.claims: list[dict[str, Any]] = []
        self.refused: list[dict[str, Any]] = []
        self.later: list[dict[str, Any]] = []


def answer(request: Request, form: Form) -> Response:
    """Say whether an effect has happened."""
    site: Site = request.app.state.site
    known = choice(form, "answer", list(KNOWN))
    identity = text(form, "identity")
    if known is None or not identity:
        raise WrongParameter("answer and identity are missing")
    trail = Trail(site.plan, Operator(request.state.user, text(form, "why")), "reconcile")
    consumers = one_each(chosen_consumers(site.plan, text(form, "consumer")))
    reconciled(site.plan, consumers, trail, identity=identity, answer=KNOWN[known])
    return _again(request)


def decide(request: Request, form: Form) -> Response:
    """Retry or drop a refused message."""
    site: Site = request.app.state.site
    act = choice(form, "act", ["retry", "drop"])
    message_id = text(form, "id")
    if act is None or not message_id:
        raise WrongParameter("act and id are missing")
    trail = Trail(site.plan, Operator(request.state.user, text(form, "why")), f"outbox {act}")
    chosen = Chosen(ids=frozenset({message_id}))
    if act == "retry":
        outbox.retry(site.plan, chosen, trail)
    else:
        outbox.drop(site.plan, chosen, trail)
    return _again(request)


def audit(request: Request) -> Response:
    """Show the latest changes that operators made."""
    site: Site = request.app.state.site
    names = {each.scope: each.called for each in site.plan.consumers}
    rows = []
    if site.plan.engine is not None:
        key = text(request.query_params, "key") or None
        rows = [
            {**asdict(change), "consumer": names.get(change.consumer, "")}
            for change in auditing.changes(site.plan, _MOST_CHANGES, key=key)
        ]
    return page(request, "audit.html", {"rows": rows, "most": _MOST_CHANGES}, title="audit trail")


def _again(request: Request) -> Response:
    return RedirectResponse(f"{request.scope.get('root_path', '')}/waiting", 303)
