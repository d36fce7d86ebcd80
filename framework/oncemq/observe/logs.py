"""Logging pipeline for OnceMQ, the user's handlers and the libraries."""

import logging
import os
import sys
import threading
import traceback
from collections.abc import Callable, Iterable, MutableMapping
from contextlib import suppress
from contextvars import ContextVar
from types import TracebackType
from typing import Any, Final, Literal, TextIO

import structlog
from structlog.types import Processor

from oncemq.common.error_text import clean_text, describe
from oncemq.common.redaction import Redactor, escape
from oncemq.message.envelope import Envelope
from oncemq.observe.fields import Cleaner, message_fields
from oncemq.observe.log_output import LogOutput
from oncemq.observe.render import ConsoleLine, json_line

Style = Literal["auto", "console", "json"]

QUIET = ("pika", "sqlalchemy", "asyncio", "urllib3")
"""Libraries that log too much, or show statements, below WARNING."""

_MAX_TRACE = 1_000_000
"""Characters of a traceback that are processed."""

_STRUCTLOGS_OWN = ("_record", "_from_structlog")

# A context variable must be a module global; it holds a message only while its handler runs.
_handling: ContextVar[tuple[str, Envelope] | None] = ContextVar("oncemq_handling", default=None)


now_handling: Final[Callable[[tuple[str, Envelope] | None], object]] = _handling.set
"""Adds a consumer's message to every line that this thread or task logs from now on; None ends that.

It is called for every message, so it is the variable's own method: the fields are built only when a line is logged.
"""


def now_handled() -> Envelope | None:
    """Return the message whose handler runs in this thread or task."""
    handling = _handling.get()
    return None if handling is None else handling[1]


class LogHandler(logging.Handler):
    """The only handler that `configure` installs; a type of its own, so that it can be replaced.

    Args:
        stream: where lines go; a pipe that nothing reads loses them, and blocks no thread.
    """

    def __init__(self, stream: TextIO | None) -> None:
        super().__init__()
        self._output = LogOutput(stream)

    def emit(self, record: logging.LogRecord) -> None:
        """Write the record's line."""
        try:
            self._output.write(f"{self.format(record)}\n")
        except RecursionError:
            raise
        except Exception:
            self.handleError(record)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - the base class's name
        """Report that a line is lost, without its content: the base class would print its arguments unredacted."""
        kind, place = sys.exc_info()[0], f"{escape(record.filename)}:{record.lineno}"
        with suppress(OSError, ValueError, AttributeError):
            sys.stderr.write(f"a log line is lost: {kind.__name__ if kind else 'error'} at {place}\n")


def configure(
    level: str = "info",
    style: Style = "auto",
    stream: TextIO | None = None,
    secrets: Iterable[str] = (),
    *,
    row_values: bool = False,
) -> None:
    """Send this process's log lines to `stream`, replacing the handlers of an earlier call or `logging.basicConfig`.

    Uncaught warnings and errors become log lines too: the interpreter would print them unredacted.

    Args:
        level: the lowest level shown, by its name in logging, in any case.
        style: "console" for people, "json" for machines, "auto" decides by whether `stream` is a terminal.
        stream: the output; the process's stderr if None.
        secrets: values that are masked wherever they appear, such as the passwords of the configuration.
        row_values: whether errors may show values of rows, as databases report them.

    Raises:
        ValueError: unknown level or style.
    """
    stream = sys.stderr if stream is None else stream
    number = _level(level)
    clean = Cleaner(Redactor(secrets, row_values=row_values))
    handler = LogHandler(stream)
    handler.setFormatter(_formatter(_renderer(style, stream), clean))
    root = logging.getLogger()
    for old in [old for old in root.handlers if isinstance(old, LogHandler) or _is_console(old)]:
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(number)
    for name in QUIET:
        logging.getLogger(name).setLevel(max(number, logging.WARNING))
    logging.captureWarnings(capture=True)
    sys.excepthook = _log_uncaught
    threading.excepthook = _log_uncaught_in_thread
    sys.unraisablehook = _log_unraisable
    _configure_structlog(clean)


def own_logger(redact: Redactor) -> Any:
    """Return OnceMQ's own logger: structlog's if it is configured, by `configure` or a service; otherwise stdlib's.

    With stdlib's logger `oncemq` each event is one message with its fields, also in the record's `oncemq`; texts
    and tracebacks are redacted. Handlers, levels and formats stay the service's.
    """
    if structlog.is_configured():
        return structlog.get_logger("oncemq")
    return structlog.wrap_logger(
        logging.getLogger("oncemq"),
        processors=[structlog.stdlib.filter_by_level, *log_processors(redact), _as_record],
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )


def log_processors(redact: Redactor | None = None) -> list[Processor]:
    """Return structlog processors for a service that configures structlog itself: put them before its renderer.

    They add the message that a handler's line is about, render tracebacks, and mask secrets and values of rows.

    Args:
        redact: masks secrets, from `oncemq.common.redaction`; None masks by patterns only, without known passwords.
    """
    return [
        _add_message,
        structlog.processors.ExceptionRenderer(_traceback),
        _safe(Cleaner(redact or Redactor())),
    ]


def _as_record(
    _logger: Any, _method: str, event: MutableMapping[str, Any]
) -> tuple[tuple[str], dict[str, Any]]:
    trace, text = event.pop("exception", None), str(event.pop("event", ""))
    line = " ".join([text, *(f"{name}={value!r}" for name, value in event.items())])
    return (line if trace is None else f"{line}\n{trace}",), {"extra": {"oncemq": dict(event)}}


def _is_console(handler: logging.Handler) -> bool:
    """Return whether a handler of the root logger would show the same lines on the terminal again."""
    return type(handler) is logging.StreamHandler and handler.stream in {
        sys.stderr,
        sys.stdout,
        sys.__stderr__,
        sys.__stdout__,
    }


def _log_uncaught(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if issubclass(kind, KeyboardInterrupt):
        sys.__excepthook__(kind, error, trace)
        return
    logging.getLogger("oncemq").critical("uncaught error", exc_info=(kind, error, trace))


def _log_uncaught_in_thread(arguments: threading.ExceptHookArgs) -> None:
    if arguments.exc_value is None or issubclass(arguments.exc_type, SystemExit):
        return
    logging.getLogger("oncemq").critical(
        "uncaught error in thread %s",
        arguments.thread.name if arguments.thread else "?",
        exc_info=(arguments.exc_type, arguments.exc_value, arguments.exc_traceback),
    )


def _log_unraisable(arguments: "sys.UnraisableHookArgs") -> None:
    error = arguments.exc_value
    trace = None if error is None else (type(error), error, arguments.exc_traceback)
    text = arguments.err_msg or "exception ignored in"
    logging.getLogger("oncemq").error("%s %s", text, _name_of(arguments.object), exc_info=trace)


def _name_of(thing: object) -> str:
    return getattr(thing, "__qualname__", type(thing).__qualname__)


def _level(level: str) -> int:
    number = logging.getLevelNamesMapping().get(level.upper())
    if number is None:
        raise ValueError(f"unknown log level {level!r}: write debug, info, warning, error or critical")
    return number


def _renderer(style: Style, stream: TextIO | None) -> Processor:
    terminal = stream is not None and stream.isatty()
    if style == "json" or (style == "auto" and not terminal):
        return json_line
    if style in {"auto", "console"}:
        return ConsoleLine(colours=terminal and "NO_COLOR" not in os.environ)
    raise ValueError(f"unknown log style {style!r}: write auto, console or json")


def _safe(clean: Cleaner) -> Processor:
    def safe(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        kept = {name: event.pop(name) for name in _STRUCTLOGS_OWN if name in event}
        trace = event.pop("exception", None)
        if trace is not None:
            kept["exception"] = clean.trace(str(trace))
        return {clean.text(name): clean.field(name, value) for name, value in event.items()} | kept

    return safe


def _steps(clean: Cleaner, *more: Processor) -> list[Processor]:
    """Return the processors for every event, of any logger; afterwards it is safe for any handler."""
    return [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="time"),
        _add_message,
        *more,
        structlog.processors.StackInfoRenderer(),
        structlog.processors.ExceptionRenderer(_traceback),
        _safe(clean),
    ]


def _configure_structlog(clean: Cleaner) -> None:
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            structlog.stdlib.PositionalArgumentsFormatter(),
            *_steps(clean),
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        wrapper_class=structlog.stdlib.BoundLogger,
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=False,
    )


def _formatter(render: Processor, clean: Cleaner) -> logging.Formatter:
    return structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=_steps(clean, structlog.stdlib.ExtraAdder()),
        processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, render],
    )


def _traceback(exc_info: Any) -> str:
    """Return a traceback; an exception that cannot be rendered is named, and its line is not lost."""
    try:
        return clean_text("".join(traceback.format_exception(*exc_info)).rstrip("\n"), _MAX_TRACE)
    except BaseException:  # the exception's own attributes may raise anything
        return f"{describe(exc_info[1])} (its traceback cannot be made)" if exc_info[1] else ""


def _add_message(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    handling = _handling.get()
    return event if handling is None else {**message_fields(*handling), **event}
