"""Dead letters: filtered, grouped, shown whole; replayed or deleted by selection or by the whole filter, with a preview."""

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import Any, Final
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from oncemq.contracts.adapter import DeadLetter
from oncemq.dashboard.parameters import (
    WrongParameter,
    choice,
    letter_filter,
    number,
    query,
    text,
)
from oncemq.dashboard.protection import Form
from oncemq.dashboard.rendering import page
from oncemq.dashboard.site import Job, Site
from oncemq.engine.plan import ConsumerPlan
from oncemq.message import headers as names
from oncemq.operate.auditing import Operator, Trail
from oncemq.operate.brokers import by_broker, chosen_consumers, prepared
from oncemq.operate.dead_letters import BATCH, Act, Filter, decided, error_of, found_letters, row_of
from oncemq.operate.letter_pages import LetterPage, PageLimits, Place, letter_page
from oncemq.operate.letters import EVERYTHING, letters_of

PAGE: Final = 50
MAX_GROUPED: Final = 10_000
"""Dead letters that are read for a page, and of each consumer for a grouping or a preview."""
MAX_BODY: Final = 64 * 1024
"""Bytes of a body that a page shows; all of them can be downloaded."""
_FIELDS: Final = ("consumer", "key", "reason", "error", "since", "until")


def listed(request: Request) -> Response:
    """List a page of dead letters, or their errors with counts."""
    site: Site = request.app.state.site
    given = request.query_params
    consumer, chosen = _chosen(site, given)
    after = _after(site, given)
    values: dict[str, Any] = {
        "consumers": [each.name for each in site.plan.consumers],
        "given": {name: given.get(name, "") for name in _FIELDS},
        "grouped": bool(given.get("group")),
        "query": lambda **more: query({**{name: given.get(name, "") for name in _FIELDS}, **more}),
        "first": after is None,
        "problems": [],
        "found": LetterPage(),
        "next": "",
        "groups": [],
        "cut": False,
        "most": MAX_GROUPED,
    }
    with site.brokers() as plan:
        consumers = chosen_consumers(plan, consumer)
        tell = values["problems"].append
        if values["grouped"]:
            with closing(found_letters(plan, consumers, chosen, MAX_GROUPED, tell, bodies=False)) as letters:
                values["groups"], values["cut"] = _groups(letters)
        else:
            limits = PageLimits(PAGE, MAX_GROUPED)
            found = values["found"] = letter_page(plan, consumers, chosen, limits, after, tell)
            if (end := found.next) is not None:
                values["next"] = values["query"](of=end.consumer, after=end.id, nth=end.number)
    return page(request, "dead_letters.html", values, title="dead letters")


def _after(site: Site, given: Mapping[str, str]) -> Place | None:
    """Return the dead letter behind which the page is to begin."""
    letter_id, of = text(given, "after"), choice(given, "of", [each.name for each in site.plan.consumers])
    if not letter_id or of is None:
        return None
    return Place(of, letter_id, number(given, "nth", 0, EVERYTHING))


def _groups(letters: Iterator[tuple[ConsumerPlan, DeadLetter]]) -> tuple[list[dict[str, Any]], bool]:
    """Return reasons and errors with counts, and whether there may be more letters than were read."""
    counts, read = Counter[tuple[str, str, str]](), Counter[str]()
    for owner, letter in letters:
        read[owner.name] += 1
        reason = letter.message.headers.get(names.REASON, "")
        counts[owner.name, reason, error_of(owner, letter).split("\n")[0][:200]] += 1
    groups = [
        {"consumer": consumer, "reason": reason, "error": error, "count": count}
        for (consumer, reason, error), count in counts.most_common(200)
    ]
    return groups, max(read.values(), default=0) >= MAX_GROUPED


def show(request: Request) -> Response:
    """Show a dead letter whole."""
    letter, owner = _one(request)
    if letter is None or owner is None:
        return page(request, "error.html", {"text": "", "status": 404}, status=404, title="not found")
    body = letter.message.body
    try:
        readable, is_text = body[:MAX_BODY].decode(), True
    except UnicodeDecodeError:
        try:  # a character may have been cut
            readable, is_text = body[: MAX_BODY - 4].decode(), len(body) > MAX_BODY
        except UnicodeDecodeError:
            readable, is_text = "", False
    if not is_text:
        readable = body[: MAX_BODY // 4].hex(" ", 2)
    found = letter.message.headers
    values = {
        "row": row_of(owner, letter),
        "headers": {name: each for name, each in found.items() if not name.startswith(names.PREFIX)},
        "traceback": owner.redact(found.get(names.TRACEBACK, "")),
        "body": _visible(readable),
        "size": len(body),
        "cut": len(body) > (MAX_BODY if is_text else MAX_BODY // 4),
        "query": query({"consumer": owner.name, "id": letter.id}),
    }
    return page(request, "letter.html", values, title="dead letters")


def body(request: Request) -> Response:
    """Return the original bytes, for a file: a browser must not show them as a page."""
    letter, owner = _one(request)
    if letter is None or owner is None:
        return page(request, "error.html", {"text": "", "status": 404}, status=404, title="not found")
    name = quote(f"{owner.name}-{letter.id}.bin", safe="")
    headers = {"content-disposition": f"attachment; filename*=UTF-8''{name}"}
    return Response(letter.message.body, media_type="application/octet-stream", headers=headers)


def preview(request: Request, form: Form) -> Response:
    """Show what a replay or a deletion would be about, before it is done."""
    site: Site = request.app.state.site
    act = _act(form)
    consumer, chosen = _chosen(site, form)
    with site.brokers() as plan:
        consumers = chosen_consumers(plan, consumer)
        with closing(found_letters(plan, consumers, chosen, MAX_GROUPED, bodies=False)) as found:
            counts = Counter(owner.name for owner, _ in found)
    values = {
        "act": act.value,
        "counts": counts,
        "cut": max(counts.values(), default=0) >= MAX_GROUPED,
        "selection": chosen.shown(),
        "consumer": consumer or "",
        "fields": {name: form.get(name, "") for name in (*_FIELDS, "id") if form.get(name)},
    }
    return page(request, "confirm.html", values, title="really")


def act(request: Request, form: Form) -> Response:
    """Begin a replay or a deletion, and show its progress."""
    site: Site = request.app.state.site
    act = _act(form)
    consumer, chosen = _chosen(site, form)
    operator = Operator(request.state.user, text(form, "why"))
    rate = number(form, "rate", 1_000_000, 1_000_000)
    total = number(form, "total", 1, EVERYTHING) if form.get("total") not in (None, "", "0") else None

    def work(job: Job) -> None:
        for count in _decided(site, act, consumer, chosen, operator):
            job.done += count
            if job.stop.wait(count / rate if rate < 1_000_000 else 0):
                return

    job = site.begin(f"dead-letters {act}", chosen.shown(), total, work)
    return RedirectResponse(f"{request.scope.get('root_path', '')}/jobs/{job.number}", 303)


def _decided(site: Site, act: Act, consumer: str | None, chosen: Filter, operator: Operator) -> Iterator[int]:
    with site.brokers() as plan:
        trail = Trail(plan, operator, f"dead-letters {act}")
        for broker, mine in by_broker(chosen_consumers(plan, consumer)).items():
            with prepared(plan, broker, mine) as adapter:
                for owner in mine:
                    yield from decided(letters_of(plan, adapter, owner), act, chosen, EVERYTHING, trail)


def job(request: Request) -> Response:
    """Show how far it is."""
    site: Site = request.app.state.site
    found = site.job(request.path_params["number"])
    if found is None:
        return page(request, "error.html", {"text": "", "status": 404}, status=404, title="not found")
    return page(request, "job.html", {"job": found, "batch": BATCH}, title="progress")


def stop(request: Request, form: Form) -> Response:
    """End it after the present batch."""
    del form
    site: Site = request.app.state.site
    number = request.path_params["number"]
    if (found := site.job(number)) is not None:
        found.stop.set()
    return RedirectResponse(f"{request.scope.get('root_path', '')}/jobs/{number}", 303)


def _one(request: Request) -> tuple[DeadLetter | None, ConsumerPlan | None]:
    site: Site = request.app.state.site
    consumer = choice(request.query_params, "consumer", [each.name for each in site.plan.consumers])
    wanted = Filter(frozenset({text(request.query_params, "id")}))
    with (
        site.brokers() as plan,
        closing(found_letters(plan, chosen_consumers(plan, consumer), wanted, 1)) as found,
    ):
        for owner, letter in found:
            return letter, owner
    return None, None


def _act(form: Form) -> Act:
    try:
        return Act(form.get("act", ""))
    except ValueError:
        raise WrongParameter("act should be replay or purge") from None


def _chosen(site: Site, given: Mapping[str, str]) -> tuple[str | None, Filter]:
    return choice(given, "consumer", [each.name for each in site.plan.consumers]), letter_filter(given)


def _visible(body: str) -> str:
    """Return a body with its lines; other unprintable characters become visible."""
    return "".join(
        each if each.isprintable() or each in "\n\t" else each.encode("unicode_escape").decode()
        for each in body
    )
