"""A collector for OpenTelemetry, over HTTP."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


@dataclass(slots=True)
class Collected:
    """What a collector has been sent.

    Args:
        url: for `OTEL_EXPORTER_OTLP_ENDPOINT`.
        traces: requests.
        metrics: requests.
    """

    url: str
    traces: list[ExportTraceServiceRequest] = field(default_factory=list)
    metrics: list[ExportMetricsServiceRequest] = field(default_factory=list)


@contextmanager
def collector() -> Iterator[Collected]:
    """Yield a collector that listens."""

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.path == "/v1/traces":
                collected.traces.append(ExportTraceServiceRequest.FromString(body))
            if self.path == "/v1/metrics":
                collected.metrics.append(ExportMetricsServiceRequest.FromString(body))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Collector)
    collected = Collected(f"http://127.0.0.1:{server.server_address[1]}")
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield collected
    finally:
        server.shutdown()
        server.server_close()
