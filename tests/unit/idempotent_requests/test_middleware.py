"""What callers of a protected service see, alike on WSGI and ASGI, on each database."""

import json
import threading
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import text

from oncemq.errors import HandlerFault
from oncemq.idempotent_requests import NOT_DONE, RUN_AGAIN, UNKNOWN, Answer, Request, RequestLedger, session
from oncemq.testing.fake_clock import FakeClock
from support.apps.payments import Call, MakeService, order, pay, payments

LEASE = timedelta(seconds=61)


def test_a_copy_gets_the_stored_answer(ledger: RequestLedger, make_service: MakeService) -> None:
    """The handler runs once; status, body and the headers that matter come again, cookies do not."""
    service = make_service(ledger)
    first, second = service.call(order()), service.call(order())
    assert (first.status, first.headers["set-cookie"]) == (201, "a=b")
    assert (second.status, second.body) == (201, first.body)
    assert second.headers["location"] == first.headers["location"]
    assert second.headers["idempotency-replayed"] == "true"
    assert not {"set-cookie"} & second.headers.keys()
    assert "idempotency-replayed" not in first.headers
    assert payments(ledger.engine, "ann") == 1


def test_another_content_is_refused(ledger: RequestLedger, make_service: MakeService) -> None:
    """The same key with another body is a mistake of the caller: 422, and nothing runs."""
    service = make_service(ledger)
    service.call(order())
    refused = service.call(order(amount=6))
    assert refused.status == 422
    assert refused.headers["content-type"] == "application/problem+json"
    assert refused.json()["status"] == 422
    assert payments(ledger.engine, "ann") == 1


def test_a_copy_meanwhile_is_told_to_come_again(ledger: RequestLedger, make_service: MakeService) -> None:
    """While the first runs, its copy is refused at once with 409 and Retry-After, and a reuse of the key with 422."""
    started, may_end = threading.Event(), threading.Event()

    def slow(given: Mapping[str, Any]) -> tuple[int, dict[str, str], bytes]:
        done = pay(given)
        started.set()
        assert may_end.wait(30)
        return done

    service, replies = make_service(ledger, slow), []
    first = threading.Thread(target=lambda: replies.append(service.call(order())))
    first.start()
    assert started.wait(30)
    try:
        meanwhile, other = make_service(ledger).call(order()), make_service(ledger).call(order(amount=7))
    finally:
        may_end.set()
        first.join(30)
    assert (meanwhile.status, meanwhile.headers["retry-after"]) == (409, "1")
    assert meanwhile.json()["type"] == "urn:oncemq:idempotency:in-progress"
    assert other.status == 422
    assert [reply.status for reply in replies] == [201]
    assert payments(ledger.engine, "ann") == 1


def test_a_failure_undoes_everything_and_frees_the_key(
    ledger: RequestLedger, make_service: MakeService
) -> None:
    """A 500 leaves neither effect nor record, so the retry runs."""
    service = make_service(ledger)
    failing = order(status=500)
    assert [service.call(failing).status for _ in range(2)] == [500, 500]
    assert payments(ledger.engine, "ann") == 0
    assert service.call(order()).status == 201


def test_an_exception_undoes_everything_and_frees_the_key(
    ledger: RequestLedger, make_service: MakeService
) -> None:
    """What the handler raised reaches its server; the retry runs."""

    def broken(given: Mapping[str, Any]) -> tuple[int, dict[str, str], bytes]:
        pay(given)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        make_service(ledger, broken).call(order())
    assert payments(ledger.engine, "ann") == 0
    assert make_service(ledger).call(order()).status == 201
    assert payments(ledger.engine, "ann") == 1


def test_a_crashed_first_try_is_taken_over(
    ledger: RequestLedger, make_service: MakeService, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its key is refused until the lease ends; then the request runs."""

    def dies(given: Mapping[str, Any]) -> tuple[int, dict[str, str], bytes]:
        pay(given)
        raise ZeroDivisionError

    service, dying = make_service(ledger), make_service(ledger, dies)
    with monkeypatch.context() as crash:
        crash.setattr(ledger, "release", lambda _claim: None)
        with pytest.raises(ZeroDivisionError):
            dying.call(order())
    assert service.call(order()).status == 409
    clock.advance(LEASE)
    assert service.call(order()).status == 201
    assert payments(ledger.engine, "ann") == 1


@pytest.mark.parametrize(
    "requests_url",
    [
        pytest.param("postgresql", marks=pytest.mark.server),
        pytest.param("mariadb", marks=pytest.mark.server),
    ],
    indirect=True,
)
def test_a_first_try_that_outlives_its_lease_changes_nothing(
    ledger: RequestLedger, make_service: MakeService, clock: FakeClock
) -> None:
    """Another try has taken over and finished meanwhile: the late one is rolled back and told so."""
    service, meanwhile = make_service(ledger), []

    def late(given: Mapping[str, Any]) -> tuple[int, dict[str, str], bytes]:
        done = pay(given)
        clock.advance(LEASE)
        meanwhile.append(service.call(order()))
        return done

    late_reply = make_service(ledger, late).call(order())
    assert [reply.status for reply in meanwhile] == [201]
    assert late_reply.status == 409
    assert payments(ledger.engine, "ann") == 1
    assert service.call(order()).body == meanwhile[0].body


def test_a_refusal_of_the_moment_is_not_stored(file_ledger: RequestLedger, make_service: MakeService) -> None:
    """429 is about now: the effect is undone and the key free; 404 is about the request: it is stored."""
    service = make_service(file_ledger)
    assert service.call(order(status=429)).status == 429
    assert service.call(order(status=404)).status == 404
    assert service.call(order(status=404)).headers["idempotency-replayed"] == "true"
    assert payments(file_ledger.engine, "ann") == 1


@pytest.mark.parametrize(
    ("key", "kind"),
    [
        (None, "key-missing"),
        ('""', "key-invalid"),
        ('"a", "b"', "key-invalid"),
        ('"' + "x" * 256 + '"', "key-invalid"),
    ],
)
def test_a_request_needs_one_usable_key(
    file_ledger: RequestLedger, make_service: MakeService, key: str | None, kind: str
) -> None:
    """Without a key, or with an empty, doubled or over-long one: 400 with a link to the documentation."""
    refused = make_service(file_ledger, documentation="https://example.org/keys").call(order(key=key))
    assert refused.status == 400
    assert refused.json()["type"] == f"urn:oncemq:idempotency:{kind}"
    assert refused.headers["link"].startswith("<https://example.org/keys>")
    assert payments(file_ledger.engine, "ann") == 0


def test_a_key_is_the_same_with_and_without_quotes(
    file_ledger: RequestLedger, make_service: MakeService
) -> None:
    """The draft asks for a quoted text; most clients send it bare."""
    service = make_service(file_ledger)
    replies = [service.call(order(key=key)) for key in ('"8e03-a"', "8e03-a", '"8e03-a";v=1')]
    assert len({reply.body for reply in replies}) == 1
    assert payments(file_ledger.engine, "ann") == 1


def test_what_is_not_protected_passes(file_ledger: RequestLedger, make_service: MakeService) -> None:
    """Other methods, and requests without a key where none is required, reach the application as they are."""

    def hello(_given: Mapping[str, Any]) -> tuple[int, dict[str, str], bytes]:
        with pytest.raises(HandlerFault, match="no session is lent"):
            session()
        return 200, {}, b"hello"

    service = make_service(file_ledger, hello, required=False)
    assert service.call(Call(b"", method="GET")).body == b"hello"
    assert service.call(order(key=None)).body == b"hello"


def test_tenants_do_not_meet(file_ledger: RequestLedger, make_service: MakeService) -> None:
    """Two tenants with one key are two requests; one whose tenant is not known is refused."""
    service = make_service(file_ledger, tenant=lambda request: request.headers.get("x-tenant", ""))
    for tenant in ("a", "b"):
        call = order()
        call.headers["X-Tenant"] = tenant
        assert service.call(call).status == 201
    assert service.call(order()).status == 400
    assert payments(file_ledger.engine, "ann") == 2


def test_routes_do_not_meet(file_ledger: RequestLedger, make_service: MakeService) -> None:
    """One key on two paths is two requests."""
    service, elsewhere = make_service(file_ledger), order()
    elsewhere.path = "/refunds"
    assert service.call(order()).body != service.call(elsewhere).body


def test_a_fingerprint_of_ones_own(file_ledger: RequestLedger, make_service: MakeService) -> None:
    """What it leaves out may differ between copies."""
    service = make_service(file_ledger, fingerprint=lambda request: json.loads(request.body)["account"])
    assert service.call(order(amount=5)).body == service.call(order(amount=6)).body
    assert service.call(order("bob")).status == 422


def test_a_large_answer_is_sent_but_not_kept(file_ledger: RequestLedger, make_service: MakeService) -> None:
    """A copy is told that the request was carried out, and does not carry it out again."""

    def long(given: Mapping[str, Any]) -> tuple[int, dict[str, str], bytes]:
        pay(given)
        return 201, {}, b"x" * 100_000

    service = make_service(file_ledger, long, max_answer=1000)
    assert service.call(order()).body == b"x" * 100_000
    again = service.call(order())
    assert (again.status, again.json()["original_status"]) == (409, 201)
    assert "retry-after" not in again.headers
    assert payments(file_ledger.engine, "ann") == 1


def test_a_large_request_is_refused(file_ledger: RequestLedger, make_service: MakeService) -> None:
    """413 before anything runs."""
    refused = make_service(file_ledger, max_request=10).call(order())
    assert refused.status == 413
    assert payments(file_ledger.engine, "ann") == 0


def test_a_swallowed_database_error_does_not_pass_for_success(
    ledger: RequestLedger, make_service: MakeService
) -> None:
    """A handler that hides an error cannot answer 201: its transaction would not commit."""

    def hiding(given: Mapping[str, Any]) -> tuple[int, dict[str, str], bytes]:
        pay(given)
        try:
            session().execute(text("SELECT nothing FROM nowhere"))
        except Exception:
            return given["status"], {}, b""
        raise AssertionError

    with pytest.raises(Exception, match="nowhere"):
        make_service(ledger, hiding).call(order(status=201))
    assert make_service(ledger, hiding).call(order(status=400)).status == 400
    assert payments(ledger.engine, "ann") == 0
    assert make_service(ledger).call(order()).status == 201


def test_a_handler_may_not_end_the_transaction(file_ledger: RequestLedger, make_service: MakeService) -> None:
    """commit() flushes; what follows can still undo it."""

    def committing(given: Mapping[str, Any]) -> tuple[int, dict[str, str], bytes]:
        pay(given)
        session().commit()
        return 500, {}, b""

    make_service(file_ledger, committing).call(order())
    assert payments(file_ledger.engine, "ann") == 0


def test_an_unreachable_ledger_runs_nothing(file_ledger: RequestLedger, make_service: MakeService) -> None:
    """Without the ledger nothing can be done once: 503 with Retry-After, in words that show no address."""
    with file_ledger.engine.begin() as connection:
        connection.execute(text("DROP TABLE payments"))
    file_ledger.engine.dispose()
    file_ledger.engine.pool._creator = _away  # type: ignore[attr-defined]
    reply = make_service(file_ledger).call(order())
    assert (reply.status, reply.headers["retry-after"]) == (503, "1")
    assert "address" not in reply.body.decode()


def _away(*_: Any) -> Any:
    import sqlite3  # noqa: PLC0415

    raise sqlite3.OperationalError("disk I/O error at an address")


class Outside:
    """An effect that no transaction can undo."""

    def __init__(self) -> None:
        self.happened = 0

    def mail(self, given: Mapping[str, Any]) -> tuple[int, dict[str, str], bytes]:
        """Have the effect, then answer what the request says; a status of 0 raises."""
        if given.get("status") != 429:
            self.happened += 1
        if given.get("status") == 0:
            raise ConnectionError("lost on the way")
        return given.get("status", 202), {}, b"sent"


def test_an_external_effect_happens_once(ledger: RequestLedger, make_service: MakeService) -> None:
    """Its answer is stored after it."""
    outside = Outside()
    service = make_service(ledger, outside.mail, effects="external")
    assert [service.call(order()).body for _ in range(2)] == [b"sent", b"sent"]
    assert outside.happened == 1


def test_an_external_effect_that_may_have_happened_is_not_repeated(
    ledger: RequestLedger, make_service: MakeService
) -> None:
    """After a 500 or an exception no one knows: the next try is refused and says so, without Retry-After."""
    outside = Outside()
    service = make_service(ledger, outside.mail, effects="external")
    service.call(order(status=500))
    with pytest.raises(ConnectionError):
        service.call(order(status=0, key="k-2"))
    for call in (order(status=500), order(status=0, key="k-2")):
        refused = service.call(call)
        assert (refused.status, refused.json()["type"]) == (409, "urn:oncemq:idempotency:outcome-unknown")
        assert "retry-after" not in refused.headers
    assert outside.happened == 2


def test_an_external_handler_that_says_no_may_be_asked_again(
    file_ledger: RequestLedger, make_service: MakeService
) -> None:
    """429 says that nothing was done."""
    outside = Outside()
    service = make_service(file_ledger, outside.mail, effects="external")
    assert service.call(order(status=429)).status == 429
    assert service.call(order(status=429)).status == 429


@pytest.mark.parametrize(
    ("found", "status", "happened"),
    [(Answer(200, (), b"seen"), 200, 1), (NOT_DONE, 202, 2), (UNKNOWN, 409, 1)],
)
def test_verify_decides_about_an_abandoned_request(
    ledger: RequestLedger, make_service: MakeService, found: Any, status: int, happened: int
) -> None:
    """It returns the answer to give from then on, or that nothing was done, or that it cannot tell."""
    outside = Outside()
    rules = {"effects": "external", "abandoned": lambda _request: found, "fingerprint": lambda _request: ""}
    service = make_service(ledger, outside.mail, **rules)
    service.call(order(status=500))
    assert [service.call(order()).status for _ in range(2)] == [status, status]
    assert outside.happened == happened


def test_run_again_is_said_out_loud(file_ledger: RequestLedger, make_service: MakeService) -> None:
    """For effects that bear it."""
    outside = Outside()
    service = make_service(file_ledger, outside.mail, effects="external", abandoned=RUN_AGAIN)
    assert [service.call(order(status=500)).status for _ in range(2)] == [500, 500]
    assert outside.happened == 2


def test_what_was_exposed_stays_so(file_ledger: RequestLedger, make_service: MakeService) -> None:
    """A request left behind with external effects is not run by an app that calls them its database's today."""
    outside = Outside()
    make_service(file_ledger, outside.mail, effects="external").call(order(status=500))
    assert make_service(file_ledger).call(order(status=500)).json()["type"].endswith("outcome-unknown")


def test_old_answers_are_purged(ledger: RequestLedger, make_service: MakeService, clock: FakeClock) -> None:
    """Younger ones stay; a purged request is a new one."""
    service = make_service(ledger)
    service.call(order())
    clock.advance(timedelta(hours=23))
    service.call(order(key="k-2"))
    clock.advance(timedelta(hours=2))
    assert ledger.purge() == 1
    assert service.call(order()).status == 201
    assert payments(ledger.engine, "ann") == 3


def test_a_copy_after_its_time_is_a_new_request(
    ledger: RequestLedger, make_service: MakeService, clock: FakeClock
) -> None:
    """Before any purge: `keep` counts by the clock."""
    service = make_service(ledger)
    service.call(order())
    clock.advance(timedelta(hours=23))
    service.call(order())
    clock.advance(timedelta(hours=2))
    assert "idempotency-replayed" not in service.call(order()).headers
    assert payments(ledger.engine, "ann") == 2


def test_a_hook_sees_the_stored_answer_before_it_is_given(
    file_ledger: RequestLedger, make_service: MakeService
) -> None:
    """Of copies alone, with their request; what is stored stays as it was."""
    seen = []

    def again(request: Request, answer: Answer) -> Answer:
        seen.append((request.path, answer.status, answer.body))
        return Answer(200, (*answer.headers, ("x-again", "yes")), b"again")

    service = make_service(file_ledger, on_copy=again)
    first, copies = service.call(order()), [service.call(order()) for _ in range(2)]
    assert (first.status, "x-again" in first.headers) == (201, False)
    assert {(copy.status, copy.body, copy.headers["x-again"]) for copy in copies} == {(200, b"again", "yes")}
    assert seen == [(seen[0][0], 201, first.body)] * 2
    assert payments(file_ledger.engine, "ann") == 1
