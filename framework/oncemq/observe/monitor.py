"""Monitor of one process: its observers, and the endpoint if configured."""

from collections.abc import Callable, Sequence
from datetime import timedelta
from http import HTTPStatus
from typing import TYPE_CHECKING

from oncemq.common.clock import Clock
from oncemq.common.redaction import Redactor
from oncemq.errors import MissingExtra
from oncemq.observe.endpoint import Address, Answer, Endpoint, LocalSocket, Route, json_answer
from oncemq.observe.events import Observer
from oncemq.observe.health import STUCK_AFTER, health, readiness
from oncemq.observe.log_observer import LogObserver
from oncemq.observe.logs import own_logger
from oncemq.observe.observers import Observers
from oncemq.observe.state import StateSource

if TYPE_CHECKING:
    from oncemq.observe.metrics import MetricsObserver
    from oncemq.observe.otel.instruments import Instruments


class Monitor:
    """Always logs; serves metrics and health on `address`, and shows metrics to OpenTelemetry, if given.

    Use: build it, pass `observer` to the engine, call `serve` once the app's state is available, before
    anything is consumed, and `close` at the very end.

    Args:
        address: to listen on; None = no endpoint.
        clock: the clock of the engine.
        stuck_after: how long a consumer may have messages and settle none before it counts as unhealthy.
        others: further observers.
        redact: masks the app's secrets in logs configured by a service.
        instruments: shows metrics to OpenTelemetry; None = they are not shown.

    Raises:
        MissingExtra: an address was given, but the extra `metrics` is not installed.
    """

    def __init__(
        self,
        address: Address | LocalSocket | None,
        clock: Clock,
        *,
        stuck_after: timedelta = STUCK_AFTER,
        others: Sequence[Observer] = (),
        redact: Redactor | None = None,
        instruments: "Callable[[MetricsObserver], Instruments] | None" = None,
    ) -> None:
        self._address = address
        self._clock = clock
        self._stuck_after = stuck_after
        self._metrics = None if address is None and instruments is None else _metrics_class()()
        self._instruments = instruments(self._metrics) if instruments and self._metrics else None
        self._endpoint: Endpoint | None = None
        mine = [LogObserver(own_logger(redact or Redactor()), clock), self._metrics, self._instruments]
        self.observer = Observers([*(each for each in mine if each is not None), *others])

    def serve(self, source: StateSource) -> None:
        """Start listening, if an address was given, and show metrics.

        Raises:
            ConfigError: the address cannot be used.
        """
        if self._instruments is not None:
            self._instruments.watch(source)
        if self._address is None or self._metrics is None:
            return
        self._metrics.watch(source)
        self._endpoint = Endpoint(self._address, self._routes(source, self._metrics))

    @property
    def address(self) -> Address | LocalSocket | None:
        """Address it listens on now; None while it does not."""
        return None if self._endpoint is None else self._endpoint.address

    def close(self) -> None:
        """Stop listening, and show no gauges any more; may be called twice."""
        if self._instruments is not None:
            self._instruments.close()
        if self._endpoint is not None:
            self._endpoint.close()
            self._endpoint = None

    def _routes(self, source: StateSource, metrics: "MetricsObserver") -> dict[str, Route]:
        def healthz() -> Answer:
            report = health(source(), self._clock.monotonic(), self._stuck_after)
            return json_answer(report.as_json(), ok=report.ok)

        def readyz() -> Answer:
            report = readiness(source(), self._clock.monotonic(), self._stuck_after)
            return json_answer(report.as_json(), ok=report.ok)

        def status() -> Answer:
            return json_answer(readiness(source(), self._clock.monotonic(), self._stuck_after).as_json())

        def exposition() -> Answer:
            return Answer(HTTPStatus.OK, metrics.content_type, metrics.exposition())

        return {"/healthz": healthz, "/readyz": readyz, "/status": status, "/metrics": exposition}


def require_metrics() -> None:
    """Check that metrics can be served.

    Raises:
        MissingExtra: the extra `metrics` is not installed.
    """
    _metrics_class()


def _metrics_class() -> "type[MetricsObserver]":
    # Here and not above: the package behind it is optional.
    try:
        from oncemq.observe.metrics import MetricsObserver  # noqa: PLC0415
    except ModuleNotFoundError as error:
        if error.name != "prometheus_client":
            raise
        raise MissingExtra(
            "metrics and health on an address need the package 'prometheus_client', which is not installed: "
            "pip install 'oncemq[metrics]'"
        ) from error
    return MetricsObserver
