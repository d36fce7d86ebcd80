"""Serves metrics and health of all worker processes of a supervisor on one address, by asking each of them."""

import http.client
import json
import shutil
import socket
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oncemq.errors import MissingExtra
from oncemq.observe.endpoint import Address, Answer, Endpoint, LocalSocket, json_answer
from oncemq.observe.worker_counts import WorkerCounts

if TYPE_CHECKING:
    from prometheus_client.core import CounterMetricFamily, Metric

PATIENCE = 2.0
"""Seconds for a worker process to answer."""


def socket_of(folder: str, index: int) -> LocalSocket:
    """Return the socket of worker process number `index`, counted from 0."""
    return LocalSocket(str(Path(folder) / str(index)))


@dataclass(frozen=True, slots=True)
class _Answer:
    """Answer of one worker process.

    Args:
        index: the worker's number.
        status: of HTTP; None if there is none.
        body: of the answer.
        silent: it took the connection and did not answer; otherwise it does not listen: it starts, or has ended.
    """

    index: int
    status: int | None = None
    body: bytes = b""
    silent: bool = False


class ProcessGroup:
    """Endpoint of `count` worker processes: healthy and ready if all of them are, metrics with the label `process`.

    A process that does not listen is being started, or has ended: not ready, but healthy, since the supervisor starts it
    again. A process that listens and does not answer is blocked: a restart would help, so it is unhealthy.
    One that another has replaced is asked for its metrics until it has ended, and no longer for its health.

    Args:
        address: where to listen.
        count: the number of worker processes.
        counts: what the supervisor counts; shown with their metrics.

    Raises:
        ConfigError: the address cannot be used.
    """

    def __init__(self, address: Address, count: int, counts: WorkerCounts) -> None:
        self.folder = tempfile.mkdtemp(prefix="oncemq-")
        self._configuration: Mapping[str, Any] | None = None
        self._members = tuple(range(count))
        self._leaving: tuple[int, ...] = ()
        self._counts = counts
        try:
            self._endpoint = Endpoint(
                address,
                {
                    "/healthz": self._healthz,
                    "/readyz": self._readyz,
                    "/status": self._status,
                    "/metrics": self._metrics,
                },
            )
        except BaseException:
            shutil.rmtree(self.folder, ignore_errors=True)
            raise

    @property
    def address(self) -> Address | LocalSocket:
        """Address it listens on."""
        return self._endpoint.address

    def worker_replaced(self, index: int, successor: int) -> None:
        """Ask the successor from now on; the process itself only for its metrics, until `worker_left`."""
        self._members = tuple(successor if member == index else member for member in self._members)
        self._leaving = (*self._leaving, index)

    def worker_left(self, index: int) -> None:
        """Ask a process that was replaced no more."""
        self._leaving = tuple(leaving for leaving in self._leaving if leaving != index)

    def show_configuration(self, configuration: Mapping[str, Any]) -> None:
        """Show on `/status` which configuration runs, and what became of the last reload."""
        self._configuration = configuration

    def close(self) -> None:
        """Stop listening, and remove the workers' sockets."""
        self._endpoint.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _healthz(self) -> Answer:
        return self._combined("/healthz", absent_is_ok=True)

    def _readyz(self) -> Answer:
        return self._combined("/readyz", absent_is_ok=False)

    def _status(self) -> Answer:
        processes = [_row(answer) for answer in self._ask("/status", self._all())]
        shown = {} if self._configuration is None else {"configuration": self._configuration}
        return json_answer({**shown, "processes": processes})

    def _combined(self, path: str, *, absent_is_ok: bool) -> Answer:
        answers = self._ask(path, self._members)
        problems = [line for answer in answers for line in _problems(answer, absent_is_ok=absent_is_ok)]
        processes = [_row(answer) for answer in answers]
        return json_answer(
            {"ok": not problems, "problems": problems, "processes": processes}, ok=not problems
        )

    def _metrics(self) -> Answer:
        answers = [answer for answer in self._ask("/metrics", self._all()) if answer.status == HTTPStatus.OK]
        return _merged([(answer.index, answer.body.decode()) for answer in answers], self._counts)

    def _all(self) -> tuple[int, ...]:
        return tuple(sorted({*self._members, *self._leaving}))

    def _ask(self, path: str, members: Sequence[int]) -> list[_Answer]:
        """Ask all at once: the slowest decides how long it takes."""
        with ThreadPoolExecutor(len(members)) as pool:
            return list(pool.map(lambda index: _asked(index, socket_of(self.folder, index), path), members))


class _Connection(http.client.HTTPConnection):
    """HTTP over a local socket."""

    def __init__(self, address: LocalSocket) -> None:
        super().__init__("worker", timeout=PATIENCE)
        self._path = address.path

    def connect(self) -> None:
        """Connect to the socket; raises an OSError if the process does not listen."""
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(PATIENCE)
        self.sock.connect(self._path)


def _asked(index: int, address: LocalSocket, path: str) -> _Answer:
    connection = _Connection(address)
    try:
        try:
            connection.connect()
        except TimeoutError:
            return _Answer(index, silent=True)
        except OSError:
            return _Answer(index)
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            return _Answer(index, response.status, response.read())
        except TimeoutError:
            return _Answer(index, silent=True)
        except (OSError, http.client.HTTPException):
            return _Answer(index)  # it ended meanwhile
    finally:
        connection.close()


def _problems(answer: _Answer, *, absent_is_ok: bool) -> Iterator[str]:
    if answer.silent:
        yield f"process {answer.index} does not answer within {PATIENCE:.0f} s"
    elif answer.status is None:
        if not absent_is_ok:
            yield f"process {answer.index} is starting, or has ended"
    elif answer.status != HTTPStatus.OK:
        lines = _row(answer).get("problems") or [f"answered {answer.status}"]
        yield from (f"process {answer.index}: {line}" for line in lines)


def _row(answer: _Answer) -> dict[str, Any]:
    try:
        report = json.loads(answer.body or b"{}")
    except ValueError:
        report = {}
    return {"process": answer.index, **report} if isinstance(report, dict) else {"process": answer.index}


def _merged(texts: Sequence[tuple[int, str]], counts: WorkerCounts) -> Answer:
    """Return the metrics of all processes, each sample with the label `process`, and what their supervisor counts."""
    parse, counter, generate, content_type = _prometheus()
    families: dict[str, Metric] = {}
    for each, numbers in counts.read():
        family = counter(each.name.removesuffix("_total"), each.text, labels=each.labels)
        for labels, count in numbers.items():
            family.add_metric(labels, count)
        families[family.name] = family
    for index, text in texts:
        for found in parse(text):
            merged = families.setdefault(found.name, found)
            samples = [
                sample._replace(labels={**sample.labels, "process": str(index)}) for sample in found.samples
            ]
            merged.samples = samples if merged is found else [*merged.samples, *samples]

    class Collected:
        def collect(self) -> Iterator["Metric"]:
            yield from families.values()

    return Answer(HTTPStatus.OK, content_type, generate(Collected()))


def _prometheus() -> tuple[Callable[[str], Any], type["CounterMetricFamily"], Callable[[Any], bytes], str]:
    # Here and not above: the package is optional.
    try:
        from prometheus_client.core import CounterMetricFamily  # noqa: PLC0415
        from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest  # noqa: PLC0415
        from prometheus_client.parser import text_string_to_metric_families  # noqa: PLC0415
    except ModuleNotFoundError:
        raise MissingExtra(
            "metrics and health on an address need the package 'prometheus_client', which is not installed: "
            "pip install 'oncemq[metrics]'"
        ) from None
    return text_string_to_metric_families, CounterMetricFamily, generate_latest, CONTENT_TYPE_LATEST
