"""Decorated functions take effect once for each key; copies of a call get the first one's result."""

import asyncio
import logging
import threading
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal

import pytest
from pydantic_core import to_json
from sqlalchemy import insert, select, update
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Session

from oncemq import BadItems, Reject
from oncemq.errors import (
    AnswerNotKept,
    ConfigError,
    OutcomeUnknown,
    RequestConflict,
    RequestInProgress,
    RequestKeyInvalid,
)
from oncemq.idempotent_requests import NOT_DONE, RequestLedger, idempotent
from oncemq.idempotent_requests.http import digest_of
from oncemq.ledger.records import requests
from oncemq.testing.fake_clock import FakeClock
from support.apps.payments import PAYMENTS, payments


@dataclass
class Receipt:
    """What a payment returns."""

    number: int
    account: str


class OwnAsyncSession(AsyncSession):
    """What some libraries derive."""


def paying(ledger: RequestLedger, **options):
    """Return a protected function that takes a payment."""

    @idempotent(ledger, key=lambda job, account, fail=False: job, **options)
    def pay(job: str, account: str, session: Session, fail: bool = False) -> Receipt:
        taken = session.execute(insert(PAYMENTS).values(account=account, amount=1))
        if fail:
            raise ZeroDivisionError
        return Receipt(taken.inserted_primary_key[0], account)

    return pay


def test_a_copy_gets_the_first_result(ledger: RequestLedger) -> None:
    """As what the annotation says; the effect happens once."""
    pay = paying(ledger)
    first = pay("job-1", "ann")
    assert isinstance(first, Receipt)
    assert pay("job-1", "ann") == first
    assert pay("job-2", "ann") != first
    assert payments(ledger.engine, "ann") == 2


def test_other_arguments_are_a_conflict(file_ledger: RequestLedger) -> None:
    """Unless the fingerprint leaves them out."""
    paying(file_ledger)("job-1", "ann")
    with pytest.raises(RequestConflict):
        paying(file_ledger)("job-1", "bob")
    lenient = paying(file_ledger, name="lenient", fingerprint=lambda job, account: None)
    assert lenient("job-1", "ann") == lenient("job-1", account="bob")


def test_an_exception_undoes_the_call(file_ledger: RequestLedger) -> None:
    """It may come again."""
    pay = paying(file_ledger, fingerprint=lambda job, account, fail=False: account)
    with pytest.raises(ZeroDivisionError):
        pay("job-1", "ann", fail=True)
    assert payments(file_ledger.engine, "ann") == 0
    assert pay("job-1", "ann").account == "ann"


def test_a_call_meanwhile_is_refused(file_ledger: RequestLedger) -> None:
    """The error says when to come again."""
    running, may_end = threading.Event(), threading.Event()

    @idempotent(file_ledger, key=lambda job: job, effects="external")
    def slow(job: str) -> str:
        running.set()
        assert may_end.wait(30)
        return job

    first = threading.Thread(target=slow, args=["job-1"])
    first.start()
    assert running.wait(30)
    try:
        with pytest.raises(RequestInProgress) as caught:
            slow("job-1")
    finally:
        may_end.set()
        first.join(30)
    assert caught.value.retry_after.total_seconds() == 1
    assert slow("job-1") == "job-1"


@pytest.mark.parametrize("key", [None, "", 1.5, (), ("a", None), "x\0"])
def test_an_unusable_key_is_refused(file_ledger: RequestLedger, key: object) -> None:
    """A key is never invented."""
    wrong = idempotent(file_ledger, key=lambda: key, effects="external", name="wrong")(lambda: None)
    with pytest.raises(RequestKeyInvalid):
        wrong()


@pytest.mark.parametrize(
    "error", [ZeroDivisionError(), BadItems({0: Reject("no")})], ids=["error", "bad-items"]
)
def test_an_external_call_that_failed_may_have_taken_effect(
    file_ledger: RequestLedger, error: Exception
) -> None:
    """It is not run again; a Reject says that nothing happened, and verify can find out."""
    failures = [Reject("not now"), error, None]

    def mail(job: str) -> str:
        failure = failures.pop(0)
        if failure is not None:
            raise failure
        return "sent"

    once = idempotent(file_ledger, key=lambda job: job, effects="external")(mail)
    with pytest.raises(Reject):
        once("job-1")
    with pytest.raises(type(error)):
        once("job-1")
    with pytest.raises(OutcomeUnknown):
        once("job-1")
    checked = idempotent(
        file_ledger, key=lambda job: job, effects="external", abandoned=lambda job: NOT_DONE
    )(mail)
    assert checked("job-1") == "sent"


def test_async_functions_are_protected_off_the_loop(ledger: RequestLedger) -> None:
    """Ten copies at once: one runs, the others are refused or get its result."""
    calls = []

    @idempotent(ledger, key=lambda job: job, effects="external")
    async def work(job: str) -> str:
        calls.append(job)
        return "done"

    async def storm() -> list[object]:
        return await asyncio.gather(*(work("job-1") for _ in range(10)), return_exceptions=True)

    results = asyncio.run(storm())
    assert calls == ["job-1"]
    assert {type(result) for result in results} <= {str, RequestInProgress}
    assert asyncio.run(work("job-1")) == "done"


def test_a_result_that_json_cannot_hold(file_ledger: RequestLedger) -> None:
    """With external effects copies are told that it happened; else the call fails and undoes itself."""
    opaque = idempotent(file_ledger, key=lambda: 1, effects="external")(object)
    opaque()
    with pytest.raises(AnswerNotKept) as caught:
        opaque()
    assert caught.value.executed

    @idempotent(file_ledger, key=lambda: 2)
    def pay(session: Session) -> object:
        session.execute(insert(PAYMENTS).values(account="ann", amount=1))
        return object()

    with pytest.raises(AnswerNotKept, match=r"nothing was done by this call .*serialize") as caught:
        pay()
    assert not caught.value.executed
    assert payments(file_ledger.engine, "ann") == 0


def test_a_kept_result_that_no_longer_fits_is_told_as_such(file_ledger: RequestLedger) -> None:
    """The function's annotation changed with a release; the call has taken effect all the same."""
    idempotent(file_ledger, key=lambda: 1, effects="external", name="job")(lambda: "text")()

    @idempotent(file_ledger, key=lambda: 1, effects="external", name="job")
    def number() -> int:
        raise AssertionError("it has run already")

    with pytest.raises(
        AnswerNotKept, match="does not fit the function's present return annotation"
    ) as caught:
        number()
    assert caught.value.executed


def test_a_copy_after_its_time_runs_before_any_purge(ledger: RequestLedger, clock: FakeClock) -> None:
    """`keep` counts by the clock: just inside it is a copy, after it a new call."""
    pay = paying(ledger)
    first = pay("job-1", "ann")
    clock.advance(ledger.keep - timedelta(seconds=1))
    assert pay("job-1", "ann") == first
    clock.advance(timedelta(seconds=2))
    assert pay("job-1", "ann") != first
    assert payments(ledger.engine, "ann") == 2
    with pytest.raises(RequestConflict):
        pay("job-1", "bob")


def test_an_unknown_outcome_is_forgotten_after_its_time(ledger: RequestLedger, clock: FakeClock) -> None:
    """As all that the ledger keeps."""
    failures: list[Exception | None] = [ZeroDivisionError(), None]

    @idempotent(ledger, key=lambda job: job, effects="external")
    def mail(job: str) -> str:
        failure = failures.pop(0)
        if failure is not None:
            raise failure
        return job

    with pytest.raises(ZeroDivisionError):
        mail("job-1")
    clock.advance(ledger.keep - timedelta(seconds=1))
    with pytest.raises(OutcomeUnknown):
        mail("job-1")
    clock.advance(timedelta(seconds=2))
    assert mail("job-1") == "job-1"


def test_a_call_without_a_key_may_run_unprotected(file_ledger: RequestLedger) -> None:
    """Each time, in a transaction of its own; a key that cannot be used is refused all the same."""

    @idempotent(file_ledger, key=lambda account, job: job, missing_key="run")
    def pay(account: str, job: object, session: Session) -> str:
        session.execute(insert(PAYMENTS).values(account=account, amount=1))
        if account == "bob":
            raise ZeroDivisionError
        return account

    assert [pay("ann", None), pay("ann", None), pay("ann", "job-1"), pay("ann", "job-1")] == ["ann"] * 4
    assert payments(file_ledger.engine, "ann") == 3
    with pytest.raises(ZeroDivisionError):
        pay("bob", None)
    assert payments(file_ledger.engine, "bob") == 0
    with pytest.raises(RequestKeyInvalid):
        pay("ann", "")


def test_an_async_call_without_a_key_may_run_unprotected(file_ledger: RequestLedger) -> None:
    """Each time."""
    calls = []

    @idempotent(file_ledger, key=lambda job: job, effects="external", missing_key="run")
    async def work(job: str | None) -> None:
        calls.append(job)

    for job in (None, None, "a", "a"):
        asyncio.run(work(job))
    assert calls == [None, None, "a"]


def test_a_hook_sees_what_a_copy_gets(file_ledger: RequestLedger) -> None:
    """With the call's own arguments; what is stored stays as it was, also when the hook fails."""
    seen = []

    def again(result: Receipt, job: str, account: str) -> Receipt:
        seen.append((result.number, job, account))
        if len(seen) == 2:
            raise ZeroDivisionError
        return Receipt(-1, account)

    pay = paying(file_ledger, on_copy=again)
    first = pay("job-1", "ann")
    assert not seen
    assert pay("job-1", account="ann") == Receipt(-1, "ann")
    with pytest.raises(ZeroDivisionError):
        pay("job-1", "ann")
    pay("job-1", "ann")
    assert seen == [(first.number, "job-1", "ann")] * 3
    assert payments(file_ledger.engine, "ann") == 1


def test_options_that_mean_nothing_are_refused(file_ledger: RequestLedger) -> None:
    """When the function is decorated."""

    async def hook(result: object) -> object:
        return result

    with pytest.raises(ConfigError, match="missing_key 'skip' is not known"):
        idempotent(file_ledger, key=lambda: 1, effects="external", missing_key="skip")(lambda: None)
    with pytest.raises(ConfigError, match=r"`on_copy` of .* is async"):
        idempotent(file_ledger, key=lambda: 1, effects="external", on_copy=hook)(lambda: None)


@pytest.mark.usefixtures("oncemq_idempotency_off")
def test_switched_off_every_call_runs(file_ledger: RequestLedger) -> None:
    """With a session of the ledger's database that is committed, or the test's own; no record is written."""
    pay = paying(file_ledger)
    assert pay("job-1", "ann") != pay("job-1", "ann")
    assert payments(file_ledger.engine, "ann") == 2
    with Session(file_ledger.engine) as session:
        pay("job-1", "ann", session=session)
    assert payments(file_ledger.engine, "ann") == 2
    with pytest.raises(ZeroDivisionError):
        pay("job-1", "ann", fail=True)
    assert payments(file_ledger.engine, "ann") == 2
    with file_ledger.engine.connect() as connection:
        assert connection.execute(select(requests.TABLE.c.identity)).all() == []


@pytest.mark.usefixtures("oncemq_idempotency_off")
def test_switched_off_async_functions_run_each_time(file_ledger: RequestLedger) -> None:
    """No ledger is asked."""
    calls = []

    @idempotent(file_ledger, key=lambda job: job, effects="external")
    async def work(job: str) -> None:
        calls.append(job)

    asyncio.run(work("a"))
    asyncio.run(work("a"))
    assert calls == ["a", "a"]


def test_the_switch_is_told_once_and_a_wrong_one_refused(
    file_ledger: RequestLedger, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Left on in production it would cost money."""
    pay = paying(file_ledger)
    monkeypatch.setattr("oncemq.idempotent_requests.safety_checks._told", threading.Event())
    monkeypatch.setenv("ONCEMQ_IDEMPOTENCY", "OFF")
    with caplog.at_level(logging.WARNING):
        pay("job-1", "ann")
        pay("job-1", "ann")
    told = [record.getMessage() for record in caplog.records if "unprotected" in record.getMessage()]
    assert told == ["idempotent calls run unprotected: ONCEMQ_IDEMPOTENCY is off"]
    monkeypatch.setenv("ONCEMQ_IDEMPOTENCY", "false")
    with pytest.raises(ConfigError, match="ONCEMQ_IDEMPOTENCY='false' is not known"):
        pay("job-1", "ann")


def test_unsafe_functions_are_refused(file_ledger: RequestLedger) -> None:
    """Each in words that say what to write."""

    def without() -> None:
        """Take no session."""

    def with_session(session: Session) -> None:
        """Take one."""

    async def with_both(session: Session) -> None:
        """Take one on the event loop."""

    def with_async_session(session: AsyncSession) -> None:
        """Take the wrong one."""

    async def with_derived(session: OwnAsyncSession) -> None:
        """Take one of the user's own, on the event loop."""

    for function, options, words in (
        (with_async_session, {}, "takes an AsyncSession.*`session: Session`"),
        (with_derived, {}, "takes an AsyncSession"),
        (without, {}, 'effects="external"'),
        (with_session, {"effects": "external"}, "leave out"),
        (with_both, {}, "write def instead"),
        (with_session, {"abandoned": lambda: NOT_DONE}, "abandoned"),
    ):
        with pytest.raises(ConfigError, match=f"(?s){words}"):
            idempotent(file_ledger, key=lambda: 1, **options)(function)


def test_an_async_session_of_the_callers_is_an_argument_like_others(file_ledger: RequestLedger) -> None:
    """With external effects nothing of it is promised, so nothing is wrong with it."""

    @idempotent(
        file_ledger, key=lambda job, session: job, fingerprint=lambda job, session: job, effects="external"
    )
    async def work(job: str, session: OwnAsyncSession) -> str:
        return f"{job} {type(session).__name__}"

    assert asyncio.run(work("job-1", OwnAsyncSession())) == "job-1 OwnAsyncSession"


def test_arguments_that_cannot_be_compared_need_a_fingerprint(file_ledger: RequestLedger) -> None:
    """Nothing runs before that is said."""
    once = idempotent(file_ledger, key=lambda thing: 1, effects="external")(lambda thing: 1)
    with pytest.raises(ConfigError, match="fingerprint="):
        once(object())


def test_callers_do_not_see_the_session(file_ledger: RequestLedger) -> None:
    """Frameworks that read signatures ask their callers for the other arguments only."""
    import inspect  # noqa: PLC0415

    assert list(inspect.signature(paying(file_ledger)).parameters) == ["job", "account", "fail"]


def test_the_same_content_in_another_form_is_the_same_call(file_ledger: RequestLedger) -> None:
    """Fields in another order, 1.0 for 1, a set, a moment of another zone."""
    calls: list[object] = []

    @idempotent(file_ledger, key=lambda job, **_: job, effects="external")
    def work(job: str, **content: object) -> int:
        calls.append(job)
        return len(calls)

    noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    assert work("a", amount=1, fields={"x": 1, "y": 2}, tags={"a", "b", "c"}, at=noon) == 1
    other = noon.astimezone(timezone(timedelta(hours=5)))
    assert work("a", at=other, tags={"c", "b", "a"}, fields={"y": 2.0, "x": 1}, amount=Decimal("1.0")) == 1
    with pytest.raises(RequestConflict):
        work("a", amount=2, fields={"x": 1, "y": 2}, tags={"a", "b", "c"}, at=noon)


def test_a_call_that_an_earlier_version_kept_is_recognized(file_ledger: RequestLedger) -> None:
    """By its digest of then; other content is still refused."""
    calls: list[str] = []

    @idempotent(file_ledger, key=lambda job, _amount: job, effects="external", name="work")
    def work(job: str, _amount: int) -> int:
        calls.append(job)
        return 7

    assert work("a", 1) == 7
    with file_ledger.engine.begin() as connection:
        former = digest_of(to_json({"job": "a", "_amount": 1}))
        connection.execute(update(requests.TABLE).values(fingerprint=former))
    assert work("a", 1) == 7
    with pytest.raises(RequestConflict):
        work("a", 2)
    assert calls == ["a"]
