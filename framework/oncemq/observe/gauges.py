"""Lists the gauges, which are read from the app's state when they are asked for."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from oncemq.common.memory import resident_bytes
from oncemq.observe.state import AppState, ConsumerState, OutboxState, Phase

Samples = Iterable[tuple[tuple[str, ...], float]]
"""Values of the labels, and the gauge's value with them."""


@dataclass(frozen=True, slots=True)
class Gauge:
    """One gauge.

    Args:
        name: in Prometheus and in OpenTelemetry.
        text: the description.
        labels: their names.
        read: returns its values now; none while they are unknown.
    """

    name: str
    text: str
    labels: tuple[str, ...]
    read: Callable[[AppState], Samples]


def _of_app(name: str, text: str, read: Callable[[AppState], float | None]) -> Gauge:
    def samples(state: AppState) -> Iterator[tuple[tuple[str, ...], float]]:
        value = read(state)
        if value is not None:
            yield (), float(value)

    return Gauge(f"oncemq_{name}", text, (), samples)


def _of_outbox(name: str, text: str, read: Callable[[OutboxState], float]) -> Gauge:
    return _of_app(name, text, lambda state: None if state.outbox is None else read(state.outbox))


def _of_consumer(name: str, text: str, read: Callable[[ConsumerState], float | None]) -> Gauge:
    def samples(state: AppState) -> Iterator[tuple[tuple[str, ...], float]]:
        for row in state.consumers:
            value = read(row)
            if value is not None:
                yield (row.consumer,), float(value)

    return Gauge(f"oncemq_{name}", text, ("consumer",), samples)


def _phases(state: AppState) -> Samples:
    return [((phase.value,), float(phase is state.phase)) for phase in Phase]


def _breakers(state: AppState) -> Samples:
    return [
        ((row.consumer, breaker.kind), float(breaker.phase != "closed"))
        for row in state.consumers
        for breaker in row.breakers
    ]


def _figures(state: AppState) -> Samples:
    return [
        ((row.consumer, name), float(value)) for row in state.consumers for name, value in row.figures.items()
    ]


GAUGES: tuple[Gauge, ...] = (
    Gauge("oncemq_app_phase", "1 for the phase the app is in.", ("phase",), _phases),
    _of_app(
        "process_memory_bytes",
        "Memory that the process occupies.",
        lambda _: resident_bytes(),
    ),
    _of_outbox("outbox_messages", "Published messages that wait to be sent.", lambda o: o.messages),
    _of_outbox("outbox_oldest_seconds", "Age of the oldest of them.", lambda o: o.oldest_seconds),
    _of_outbox(
        "outbox_refused_messages", "Those that a broker has not taken at least once.", lambda o: o.refused
    ),
    _of_outbox(
        "outbox_dead_letters",
        "Messages that a broker had no place for, kept until a person retries or drops them.",
        lambda o: o.dead,
    ),
    _of_outbox("delayed_messages", "Messages that were published for later.", lambda o: o.delayed),
    _of_outbox("delayed_late_seconds", "How long the first of them has been due.", lambda o: o.late_seconds),
    _of_app(
        "clock_skew_seconds",
        "By how much this machine's clock is ahead of the database's.",
        lambda s: s.clock_skew,
    ),
    _of_app(
        "ledger_bytes",
        "Size of the ledger's tables and indexes; on SQLite of the whole file.",
        lambda s: s.ledger_bytes,
    ),
    _of_consumer("consumer_live", "1 while the consumer is subscribed and not paused.", lambda s: s.live),
    _of_consumer("consumer_subscribed", "1 while the broker sends it messages.", lambda s: s.subscribed),
    _of_consumer("consumer_paused", "1 while it is paused.", lambda s: s.paused is not None),
    _of_consumer(
        "consumer_exclusive", "1 while it runs one unit at a time after deadlocks.", lambda s: s.exclusive
    ),
    _of_consumer(
        "waiting_messages", "Messages in this process that could run or are running.", lambda s: s.waiting
    ),
    _of_consumer("in_flight_messages", "Deliveries that are not settled yet.", lambda s: s.in_flight),
    _of_consumer("broker_messages", "Messages that wait at the broker.", lambda s: s.depth),
    _of_consumer(
        "dead_letter_messages",
        "Dead letters that are at the broker or in the ledger.",
        lambda s: s.dead_letters,
    ),
    _of_consumer("parked_messages", "Messages that wait in the ledger for their turn.", lambda s: s.parked),
    _of_consumer(
        "parked_oldest_seconds", "How long the oldest of them has waited.", lambda s: s.parked_seconds
    ),
    _of_consumer(
        "held_keys",
        "Keys whose later messages wait until a person replays or purges a dead letter.",
        lambda s: s.held_keys,
    ),
    _of_consumer(
        "unknown_claims",
        "External effects of which it is unknown whether they happened.",
        lambda s: s.unknown_claims,
    ),
    Gauge(
        "oncemq_breaker_open",
        "1 while a breaker of the consumer is open or half open in this process.",
        ("consumer", "breaker"),
        _breakers,
    ),
    Gauge(
        "oncemq_strategy_figure",
        "What a consumer's strategies measure about themselves in this process.",
        ("consumer", "figure"),
        _figures,
    ),
)
