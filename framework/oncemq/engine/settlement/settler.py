"""Settles deliveries with the broker, always after the commit: acknowledge, redeliver later, dead-letter."""

import random
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, TypeVar

from tenacity import RetryCallState, Retrying, retry_if_exception_type, wait_random_exponential

from oncemq.common.clock import Clock
from oncemq.common.durations import delay_of, format_duration
from oncemq.common.error_text import MAX_ERROR_TEXT, NO_TEXT, clean_text, describe, is_a, name_of
from oncemq.common.redaction import Redactor
from oncemq.contracts.adapter import DeadLetterRequest, RetryRequest, SettleFailed, Settling
from oncemq.contracts.verdict import Outcome, Verdict, reject, retry
from oncemq.engine.base.error_verdicts import DIED, EXHAUSTED, forget_error
from oncemq.engine.base.overtaken import OVERTAKEN, tries_of
from oncemq.engine.settlement.on_dead import APPLIED_MEANWHILE, OnDead
from oncemq.errors import BrokerError, BrokerRefused, DeliveryVoid, OnceMQError, SettleError
from oncemq.message import headers
from oncemq.message.envelope import Delivery
from oncemq.observe.fields import handler_trace
from oncemq.observe.observers import Observers
from oncemq.retry.backoff import RetryPolicy

Part = TypeVar("Part")


def send_isolated(
    send: Callable[[Sequence[Part]], Sequence[SettleFailed]], parts: Sequence[Part]
) -> Sequence[SettleFailed]:
    """Return what could not be settled: all are sent together, and if that raises, each alone.

    An adapter answers with errors; anything it raises besides a BrokerError was caused by something unexpected
    in a message. Deliveries settled before it raised are answered with AlreadySettled.

    Raises:
        BrokerError: the broker is unavailable altogether.
    """
    try:
        return send(parts)
    except BrokerError:
        raise
    except Exception as error:
        if len(parts) == 1:
            return [SettleFailed(delivery_of(parts[0]), error)]
        return [failure for part in parts for failure in send_isolated(send, [part])]


def delivery_of(part: Any) -> Delivery:
    """Return the delivery of a settlement."""
    found: Delivery = part if isinstance(part, Delivery) else part.delivery
    return found


RETRIED = Outcome.RETRY.value
UNSETTLEABLE = "unsettleable"
"""The message's retry could not be encoded for the broker."""

NOT_RETRIED = "not-retried"
"""A rule says that the message's error is never retried."""

MAX_TRACE = 4000
"""Characters of a traceback that travel with a dead letter: its end, which names the error."""


_LONGEST_WAIT = 5.0
_HELD_TOO_LONG = 30.0
_REFUSALS = 3
"""After this many refusals the message itself is the cause: it is kept elsewhere, and does not delay others."""


class Settler:
    """Turns verdicts into settlements.

    Args:
        consumer: the consumer's name.
        adapter: the broker, or the router before it.
        policy: attempts and pauses, of a message.
        clock: the source of time.
        observers: notified of every retry, dead letter and failed settlement.
        dead: called with (delivery, code, reason) of stored dead letters, those of a unit together.
        give_up: whether to stop trying when the broker cannot be reached (the process is ending).
        sleep: waits seconds between attempts.
        point: called with each kill point reached.
        redact: masks secrets in the headers of dead letters and retries.
        keep: stores dead letters that the broker refuses; None without a store.
        longest: how long records of applied messages are kept; a later retry would take effect again.
        tried: called with (delivery, code, reason) of failed messages whose retry is certain, those of a unit together.
        sign: returns the headers of a delivery's copy with their signature.
        on_dead: runs the user's function for a message before its dead letter is sent; None without one.
    """

    def __init__(
        self,
        consumer: str,
        adapter: Settling,
        policy: Callable[[Delivery], RetryPolicy],
        clock: Clock,
        observers: Observers,
        dead: Callable[[Sequence[tuple[Delivery, str, str]]], None],
        give_up: Callable[[], bool],
        sleep: Callable[[float], object],
        point: Callable[[str], None],
        redact: Redactor | None = None,
        keep: Callable[[Sequence[DeadLetterRequest]], Sequence[SettleFailed]] | None = None,
        longest: timedelta | None = None,
        tried: Callable[[Sequence[tuple[Delivery, str, str]]], None] = lambda _tries: None,
        sign: Callable[[Delivery, dict[str, str]], dict[str, str]] = lambda _delivery, headers: headers,
        on_dead: OnDead | None = None,
    ) -> None:
        self._consumer = consumer
        self._tried = tried
        self._sign = sign
        self._on_dead = on_dead
        self._longest = longest
        self._adapter = adapter
        self._policy = policy
        self._clock = clock
        self._observers = observers
        self._dead = dead
        self._give_up = give_up
        self._sleep = sleep
        self._point = point
        self._clean = redact or Redactor()
        self._keep = keep
        self._draw = random.Random()  # noqa: S311 - jitter

    def settle(self, verdicts: Sequence[tuple[Delivery, Verdict]]) -> None:
        """Report every verdict that needs it to the broker; returns when each is settled or void.

        RETURNED and Defer need no settlement: the caller keeps those deliveries.
        """
        for delivery, verdict in verdicts:
            delivery.outcome = verdict.outcome
        done = [delivery for delivery, verdict in verdicts if verdict.acknowledged]
        if done:
            self._point("before-ack")
            self._acknowledge(done)
            self._point("ack-sent")
            for delivery, verdict in verdicts:
                if verdict.outcome is Outcome.STALE:
                    self._observers.stale(self._consumer, delivery, reason=verdict.reason)
                elif verdict.outcome is Outcome.EXPIRED:
                    self._observers.expired(self._consumer, delivery, reason=verdict.reason)
        if len(done) < len(verdicts):
            self._settle_failed([(d, v) for d, v in verdicts if not v.acknowledged])

    def _acknowledge(self, done: list[Delivery]) -> None:
        failures = _told(self._adapter.acknowledge, done)
        if failures:
            self._report([failure for failure in failures if not _is_brokers(failure.error)])
            again = [failure.delivery for failure in failures if _is_brokers(failure.error)]
            if again:
                self._insist(self._adapter.acknowledge, {delivery: delivery for delivery in again})

    def _settle_failed(self, failed: list[tuple[Delivery, Verdict]]) -> None:
        later: list[tuple[RetryRequest, Verdict]] = []
        dead: list[tuple[DeadLetterRequest, Verdict, str]] = []
        waiting: list[tuple[RetryRequest, Verdict]] = []
        for delivery, verdict in failed:
            if verdict.outcome in {Outcome.RETURNED, Outcome.DEFER, Outcome.VOID}:
                continue
            if verdict.outcome is Outcome.WAIT:
                waiting.append((self._waiting(delivery, verdict), verdict))
            elif verdict.outcome is Outcome.RETRY and not self.exhausted(delivery, verdict.error):
                later.append(self._as_later(delivery, verdict))
            else:
                code = (
                    self._exhausted_by(delivery, verdict)
                    if verdict.outcome is Outcome.RETRY
                    else verdict.code
                )
                dead.append((self._as_dead(delivery, verdict, code), verdict, code))
        if waiting:
            dead += self._send_later(waiting)[1]
        if later:
            dead += self._retry(later)
        if dead:
            self._bury(dead)
        for _, verdict in failed:
            forget_error(verdict)

    def _as_later(self, delivery: Delivery, verdict: Verdict) -> tuple[RetryRequest, Verdict]:
        """Return the message's retry request; an unusable delay is a failure of the message itself."""
        try:
            delay = None if verdict.delay is None else delay_of(verdict.delay)
        except (TypeError, ValueError) as wrong:
            return self._as_later(delivery, retry(describe(wrong), error=wrong))
        if delay is not None and self._longest is not None and delay > self._longest:
            too_late = ValueError(
                f"a retry after {format_duration(delay)} is later than records are kept ({format_duration(self._longest)}): "
                "a copy of this message would take effect again – ask for less, or write a longer keep:"
            )
            return self._as_later(delivery, retry(describe(too_late), error=too_late))
        return self._later(delivery, verdict, delay), verdict

    def exhausted(self, delivery: Delivery, error: BaseException | None = None) -> bool:
        """Return whether the attempt that just ended, with `error`, was the last one."""
        most = self._policy(delivery).for_error(error).attempts_of(delivery.message.headers)
        return delivery.message.attempt + delivery.crashes >= most

    def _exhausted_by(self, delivery: Delivery, verdict: Verdict) -> str:
        usual = self._policy(delivery)
        policy = usual.for_error(verdict.error)
        return NOT_RETRIED if policy is not usual and policy.attempts == 1 else EXHAUSTED

    def hand_back(self, deliveries: Sequence[Delivery]) -> None:
        """Return deliveries to the broker that were never started."""
        if deliveries:
            self._report(self._adapter.give_back(deliveries))

    def held_too_long(self, delivery: Delivery) -> bool:
        """Return whether a deferred delivery has been kept long enough to be returned to the broker."""
        now = self._clock.monotonic()
        if not delivery.deferred_since:
            delivery.deferred_since = now
        return now - delivery.deferred_since > _HELD_TOO_LONG

    def put_off(self, deferred: Sequence[tuple[Delivery, timedelta]]) -> None:
        """Return deferred deliveries to the broker with these delays; does not count as an attempt."""
        if deferred:
            later = {
                delivery: RetryRequest(
                    delivery, delay, self._sign(delivery, self._headers(delivery, delivery.message.attempt))
                )
                for delivery, delay in deferred
            }
            _, broken = self._insist(self._adapter.retry, later)
            verdict = reject("it cannot be delayed: the broker refuses its copy", code=UNSETTLEABLE)
            if broken:
                self._bury(
                    [(self._as_dead(each, verdict, UNSETTLEABLE), verdict, UNSETTLEABLE) for each in broken]
                )

    def _retry(
        self, later: list[tuple[RetryRequest, Verdict]]
    ) -> list[tuple[DeadLetterRequest, Verdict, str]]:
        """Have these redelivered; returns those that cannot be, which end as dead letters."""
        settled, broken = self._send_later(later)
        too_long = [each for each, verdict in later if verdict.delay is not None]
        refused = {each.delivery for each, _, _ in broken} & {each.delivery for each in too_long}
        if refused:
            # The handler requested a delay longer than this broker can hold; the policy's own pauses are checked at start.
            again = [_in_time(each) for each in too_long if each.delivery in refused]
            later = [*later, *(self._as_later(delivery, verdict) for delivery, verdict in again)]
            more, _ = self._send_later(later[-len(again) :])
            settled |= more
            broken = [each for each in broken if each[0].delivery not in more]
        self._point("retry-published")
        latest = {each.delivery: (each, verdict) for each, verdict in later if each.delivery in settled}
        if latest:
            self._tried(
                [(each.delivery, RETRIED, self._reason(verdict)) for each, verdict in latest.values()]
            )
        for each, verdict in latest.values():
            self._observers.retried(
                self._consumer,
                each.delivery,
                next_in=each.delay,
                reason=verdict.reason,
                error=verdict.error,
            )
        return broken

    def _send_later(
        self, later: list[tuple[RetryRequest, Verdict]]
    ) -> tuple[set[Delivery], list[tuple[DeadLetterRequest, Verdict, str]]]:
        """Return deliveries that can be retried, and those that cannot."""
        settled, broken = self._insist(self._adapter.retry, {each.delivery: each for each, _ in later})
        return settled, [
            (self._as_dead(each.delivery, verdict, UNSETTLEABLE), verdict, UNSETTLEABLE)
            for each, verdict in later
            if each.delivery in broken
        ]

    def _bury(self, dead: list[tuple[DeadLetterRequest, Verdict, str]]) -> None:
        if self._on_dead is not None:
            dead, applied = self._on_dead.before(dead, self._reason, self._clean)
            self._point("on-dead-done")
            if applied:
                self._acknowledge(applied)
                self._tried([(each, Outcome.DUPLICATE.value, APPLIED_MEANWHILE) for each in applied])
            if not dead:
                return
        letters = {each.delivery: each for each, _, _ in dead}
        settled, broken = self._insist(self._adapter.dead_letter, dict(letters))
        if broken and self._keep is not None:
            kept, _ = self._insist(self._keep, {delivery: letters[delivery] for delivery in broken})
            settled |= kept
        self._point("dead-letter-published")
        safe = [(each.delivery, code, verdict) for each, verdict, code in dead if each.delivery in settled]
        self._dead([(delivery, code, self._reason(verdict)) for delivery, code, verdict in safe])
        for delivery, code, verdict in safe:
            self._observers.dead_lettered(
                self._consumer, delivery, code=code, reason=verdict.reason, error=verdict.error
            )

    def _later(self, delivery: Delivery, verdict: Verdict, delay: timedelta | None) -> RetryRequest:
        attempt = delivery.message.attempt
        policy = self._policy(delivery).for_error(verdict.error)
        pause = delay if delay is not None else policy.pause(attempt, self._draw)
        carried = self._headers(delivery, attempt + 1) | self._failed(delivery, verdict)
        return RetryRequest(delivery, pause, self._sign(delivery, carried))

    def _failed(self, delivery: Delivery, verdict: Verdict) -> dict[str, str]:
        return {**self._cause(delivery, verdict), **tries_of(delivery, verdict)}

    def _waiting(self, delivery: Delivery, verdict: Verdict) -> RetryRequest:
        message = delivery.message
        since = message.headers.get(headers.WAITING_SINCE) or self._clock.now().isoformat()
        carried = self._headers(delivery, message.attempt) | {headers.WAITING_SINCE: since}
        return RetryRequest(delivery, verdict.delay or timedelta(0), self._sign(delivery, carried))

    def _as_dead(self, delivery: Delivery, verdict: Verdict, code: str) -> DeadLetterRequest:
        # A message on which processes died is dead-lettered before the attempt that this delivery would have been.
        attempts = delivery.message.attempt + delivery.crashes - (code in DIED)
        cause = self._cause(delivery, verdict) | {headers.REASON: code} | self._trace(verdict)
        return DeadLetterRequest(delivery, self._headers(delivery, attempts) | cause)

    def _headers(self, delivery: Delivery, attempt: int) -> dict[str, str]:
        message = delivery.message
        carried = {
            headers.ATTEMPT: str(attempt),
            headers.CONSUMER: self._consumer,
            headers.ORIGIN_TOPIC: message.headers.get(headers.ORIGIN_TOPIC, message.topic),
        }
        if known := delivery.known_key:
            carried[headers.KEY] = known
        if message.published_at is not None:
            carried[headers.PUBLISHED_AT] = message.published_at.isoformat()
        if message.first_failed_at is not None:
            carried[headers.FIRST_FAILED_AT] = message.first_failed_at.isoformat()
        if headers.TRIED in message.headers:
            carried[headers.TRIED] = message.headers[headers.TRIED]
        return carried

    def _cause(self, delivery: Delivery, verdict: Verdict) -> dict[str, str]:
        now, error = self._clock.now(), verdict.error
        first = delivery.message.first_failed_at or now
        text = self._reason(verdict) or (self._clean(describe(error)) if error is not None else "")
        kind = name_of(error) if error is not None else verdict.outcome.value
        if verdict.code == OVERTAKEN:
            kind = delivery.message.headers.get(headers.ERROR_CLASS, kind)
        return {
            headers.FIRST_FAILED_AT: first.isoformat(),
            headers.LAST_FAILED_AT: now.isoformat(),
            headers.ERROR_CLASS: kind,
            headers.ERROR_TEXT: text[:MAX_ERROR_TEXT],
        }

    def _trace(self, verdict: Verdict) -> dict[str, str]:
        """Return the header with the handler's traceback; a deliberate Reject and our own refusals have none."""
        error = verdict.error
        if error is None or is_a(error, OnceMQError):
            return {}
        text = self._clean(handler_trace(error))
        return {headers.TRACEBACK: text[-MAX_TRACE:]} if text else {}

    def _reason(self, verdict: Verdict) -> str:
        """Return the verdict's reason as text that can be stored anywhere; a strategy may have written anything."""
        return self._clean(clean_text(verdict.reason if isinstance(verdict.reason, str) else NO_TEXT))

    def _pause(self, seconds: float) -> None:
        self._sleep(seconds)

    def _insist(
        self, send: Callable[[Sequence[Part]], Sequence[SettleFailed]], left: dict[Delivery, Part]
    ) -> tuple[set[Delivery], set[Delivery]]:
        """Send until each part is settled or void; returns the settled parts, and those that never can be."""
        settled: set[Delivery] = set()
        broken: set[Delivery] = set()
        refusals: Counter[Delivery] = Counter()

        def refused(failure: SettleFailed) -> bool:
            """Whether the broker has refused so often that the message itself is the cause."""
            if not isinstance(failure.error, BrokerRefused) or not isinstance(
                left[failure.delivery], RetryRequest | DeadLetterRequest
            ):
                return False
            refusals[failure.delivery] += 1
            return refusals[failure.delivery] >= _REFUSALS

        def once() -> None:
            failures = send_isolated(send, list(left.values()))
            final = [failure for failure in failures if not _is_brokers(failure.error) or refused(failure)]
            self._report(final)
            broken.update(failure.delivery for failure in final if not isinstance(failure.error, SettleError))
            ended = {failure.delivery for failure in final}
            again = {failure.delivery: failure for failure in failures if failure.delivery not in ended}
            settled.update(left.keys() - again.keys() - ended)
            for delivery in left.keys() - again.keys():
                del left[delivery]
            if again:
                raise Unsettled(next(iter(again.values())).error)

        retrying = Retrying(
            retry=retry_if_exception_type((Unsettled, BrokerError)),
            wait=wait_random_exponential(multiplier=0.1, max=_LONGEST_WAIT),
            stop=lambda _: self._give_up(),
            before_sleep=lambda state: self._complain(state, len(left)),
            sleep=self._pause,
            reraise=True,
        )
        try:
            retrying(once)
        except (Unsettled, BrokerError) as error:
            self._observers.settle_failed(self._consumer, len(left), error)
        return settled, broken

    def _complain(self, state: RetryCallState, count: int) -> None:
        error = state.outcome.exception() if state.outcome is not None else None
        if error is not None:
            self._observers.settle_failed(self._consumer, count, error)

    def _report(self, failures: Sequence[SettleFailed]) -> None:
        """Report what could not be settled; a void delivery is redelivered by the broker, which is not an error."""
        real = [failure for failure in failures if not isinstance(failure.error, DeliveryVoid)]
        if real:
            self._observers.settle_failed(self._consumer, len(real), real[0].error)


def _in_time(later: RetryRequest) -> tuple[Delivery, Verdict]:
    """Return the delivery with the retry policy's delay; its own delay was refused."""
    wrong = ValueError(
        f"a retry after {format_duration(later.delay)} is refused by the broker, which holds no message for so long"
    )
    return later.delivery, retry(describe(wrong), error=wrong)


class Unsettled(Exception):
    """Some deliveries could not be settled yet."""


def _told(
    send: Callable[[Sequence[Delivery]], Sequence[SettleFailed]], deliveries: Sequence[Delivery]
) -> Sequence[SettleFailed]:
    """Send once; an unavailable broker has settled none of them."""
    try:
        return send_isolated(send, deliveries)
    except BrokerError as error:
        return [SettleFailed(delivery, error) for delivery in deliveries]


def _is_brokers(error: Exception) -> bool:
    """Whether retrying may help: the adapter answered, and the delivery is neither void nor settled."""
    return isinstance(error, BrokerError)
