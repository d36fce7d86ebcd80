"""One pipeline for all log lines: two styles, one line each, nothing secret, bound to the message at hand."""

import io
import json
import logging
import logging.handlers
import re
import sys
import threading
import warnings
from contextlib import contextmanager
from datetime import timedelta

import pytest
import structlog

from oncemq.common.redaction import Redactor
from oncemq.message.envelope import Delivery, Envelope, Message
from oncemq.observe.log_observer import LogObserver
from oncemq.observe.logs import configure, log_processors, now_handling, own_logger
from oncemq.observe.state import PauseReason

CANARY = "canary-7Q9z"
BODY = b'{"card": "4111-1111"}'


def envelope(key="order-1"):
    """Return a message with a body that must not be seen."""
    return Envelope(
        broker="shop",
        topic="order.paid",
        group="loyalty",
        key=key,
        version=None,
        identity=f"{key}:1",
        message_id="m-1",
        attempt=2,
        headers={"tenant": "a"},
        body=BODY,
        published_at=None,
    )


def raised(error):
    """Return an error that has been raised, so that it has a traceback."""
    try:
        raise error
    except type(error) as caught:
        return caught


@contextmanager
def restored():
    """Take the test runner's own handlers away, and leave logging as it was found."""
    root = logging.getLogger()
    level, handlers, hooks = (
        root.level,
        root.handlers[:],
        (sys.excepthook, threading.excepthook, sys.unraisablehook),
    )
    root.handlers[:] = []
    yield
    logging.captureWarnings(capture=False)
    sys.excepthook, threading.excepthook, sys.unraisablehook = hooks
    now_handling(None)
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()


@pytest.fixture
def stream():
    """Return where the lines go; logging is as before afterwards."""
    with restored():
        yield io.StringIO()


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self):
        """Say so."""
        return True


def lines(stream):
    """Return the lines written so far."""
    return stream.getvalue().splitlines()


def records(stream):
    """Return the JSON lines written so far."""
    return [json.loads(line) for line in lines(stream)]


def test_auto_writes_json_where_there_is_no_terminal(stream):
    """Each line is one JSON object that begins with time, level and event."""
    configure(stream=stream)
    structlog.get_logger("shop").info("hello", count=3)
    (record,) = records(stream)
    assert list(record)[:3] == ["time", "level", "event"]
    assert {**record, "time": ""} == {
        "time": "",
        "level": "info",
        "event": "hello",
        "count": 3,
        "logger": "shop",
    }


@pytest.mark.parametrize("style", ["json", "console"])
def test_time_is_iso_8601_in_utc(stream, style):
    """A line says when, with Z."""
    configure(style=style, stream=stream)
    structlog.get_logger("shop").info("hello")
    assert re.search(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", lines(stream)[0])


def test_auto_writes_for_people_on_a_terminal(monkeypatch):
    """On a terminal a line is readable and coloured."""
    monkeypatch.delenv("NO_COLOR", raising=False)
    with restored():
        terminal = Terminal()
        configure(stream=terminal)
        structlog.get_logger("shop").info("hello", note="two words", plain="x")
        text = terminal.getvalue()
    assert "\x1b[" in text
    assert re.sub(r"\x1b\[[\d;]*m", "", text).split("Z ", 1)[1] == (
        'info     hello note="two words" plain=x logger=shop\n'
    )


def test_no_color_is_honoured(monkeypatch):
    """With NO_COLOR set no colours are written."""
    monkeypatch.setenv("NO_COLOR", "1")
    with restored():
        terminal = Terminal()
        configure(stream=terminal)
        structlog.get_logger("shop").info("hello")
        assert "\x1b" not in terminal.getvalue()


@pytest.mark.parametrize("style", ["json", "console"])
@pytest.mark.parametrize("where", ["event", "value", "name", "nested", "positional"])
def test_a_newline_in_a_message_cannot_forge_a_line(stream, style, where):
    """Whatever stands in it, one call writes one line without control characters."""
    forged = "x\n2026-01-01T00:00:00Z info     all is well\x1b[2K\x9b1m\u2028"
    configure(style=style, stream=stream)
    log = structlog.get_logger("shop")
    {
        "event": lambda: log.info(forged),
        "value": lambda: log.info("e", key=forged),
        "name": lambda: log.info("e", **{forged: 1}),
        "nested": lambda: log.info("e", data={"a": [forged, {forged: forged}]}),
        "positional": lambda: log.info("e %s", forged),
    }[where]()
    text = stream.getvalue()
    assert text.endswith("\n")
    assert text[:-1].isprintable()


def test_a_forged_line_inside_a_traceback_is_marked(stream):
    """On the console the lines of an error's text cannot pass for lines of the log."""
    configure(style="console", stream=stream)
    logging.getLogger("shop").error(
        "handler failed",
        exc_info=raised(RuntimeError("boom\n2026-01-01T00:00:00Z info     all is well\x1b[2K")),
    )
    first, *rest = lines(stream)
    assert "handler failed" in first
    assert rest
    assert all(line.startswith("    | ") and line.isprintable() for line in rest)


def test_json_keeps_a_traceback_in_one_line(stream):
    """In JSON a traceback is one field of one line."""
    configure(style="json", stream=stream)
    logging.getLogger("shop").error("handler failed", exc_info=raised(RuntimeError("boom")))
    (record,) = records(stream)
    assert record["exception"].endswith("RuntimeError: boom")


@pytest.mark.parametrize("style", ["json", "console"])
def test_a_password_is_in_no_line(stream, style):
    """Credentials in messages, fields, nested values, errors and tracebacks are masked."""
    configure(style=style, stream=stream, secrets=[CANARY])
    url = f"amqp://user:{CANARY}@host/"
    log = structlog.get_logger("shop")
    log.info("connecting to %s", url, url=url, password=CANARY, nested={"token": CANARY, "list": [url]})
    logging.getLogger("pika.adapters").error("cannot connect to %s", url)
    logging.getLogger("plain").warning("x", extra={"db_password": CANARY, "note": f"it is {CANARY}"})
    error = raised(ConnectionError(url))
    log.error("failed", exc_info=error, error=error)
    assert CANARY not in stream.getvalue()
    assert "amqp://user:***@host/" in stream.getvalue()


def test_a_password_unknown_to_us_is_masked_in_urls_and_fields(stream):
    """Without a list of secrets the places where credentials stand are masked all the same."""
    configure(style="json", stream=stream)
    structlog.get_logger("shop").info("amqp://user:" + CANARY + "@host/", secret=CANARY)
    assert CANARY not in stream.getvalue()


def test_libraries_are_shown_from_warning_on(stream):
    """From pika and SQLAlchemy no one hears less than WARNING, also at level debug."""
    configure("debug", style="json", stream=stream)
    for name in ("pika.connection", "sqlalchemy.engine.Engine"):
        logging.getLogger(name).info("noise")
        logging.getLogger(name).warning("news")
    assert [record["event"] for record in records(stream)] == ["news", "news"]


def test_lines_of_a_handler_say_which_message_they_are_about(stream):
    """While a message is handled every line is bound to it, those of plain logging too."""
    configure(style="json", stream=stream)
    now_handling(("award-points", envelope()))
    logging.getLogger("handlers").info("giving points")
    now_handling(None)
    logging.getLogger("handlers").info("done")
    bound, unbound = records(stream)
    about = {
        "consumer": "award-points",
        "topic": "order.paid",
        "key": "order-1",
        "identity": "order-1:1",
        "attempt": 2,
    }
    assert about.items() <= bound.items()
    assert not about.keys() & unbound.keys()


@pytest.mark.parametrize("style", ["json", "console"])
def test_bodies_are_never_logged(stream, style):
    """Envelopes, messages, deliveries and bytes are shown without their content."""
    configure(style=style, stream=stream)
    delivery = Delivery(Message("order.paid", BODY))
    delivery.envelope, delivery.payload = envelope(), {"card": "4111-1111"}
    structlog.get_logger("shop").info(
        "seen", a=envelope(), b=delivery, c=delivery.message, d=BODY, e=[envelope()]
    )
    assert "4111" not in stream.getvalue()


class Nasty:
    """A value that cannot be shown."""

    def __repr__(self):
        raise RuntimeError("no")


@pytest.mark.parametrize("style", ["json", "console"])
@pytest.mark.parametrize(
    "value",
    [
        Nasty(),
        float("nan"),
        10**5000,
        "\ud800",
        "x" * 1_000_000,
        [[[[[[[1]]]]]]],
        {1: Nasty()},
        object(),
        RuntimeError(),
    ],
    ids=lambda value: type(value).__name__,
)
def test_any_value_can_be_logged(stream, style, value):
    """No value makes logging fail, and none makes a line endless."""
    configure(style=style, stream=stream)
    structlog.get_logger("shop").info("e", value=value)
    assert 0 < len(stream.getvalue()) < 10_000
    stream.getvalue().encode("utf-8")


def test_levels_are_honoured(stream):
    """What is below the level is not written."""
    configure("warning", style="json", stream=stream)
    structlog.get_logger("shop").info("no")
    logging.getLogger("shop").info("no")
    structlog.get_logger("shop").warning("yes")
    assert [record["event"] for record in records(stream)] == ["yes"]


def test_configuring_again_replaces_the_first(stream):
    """Two calls do not write every line twice."""
    first = io.StringIO()
    configure(style="json", stream=first)
    configure(style="json", stream=stream)
    structlog.get_logger("shop").info("once")
    assert (first.getvalue(), len(lines(stream))) == ("", 1)


@pytest.mark.parametrize("arguments", [{"level": "loud"}, {"style": "xml"}])
def test_unknown_levels_and_styles_are_refused(stream, arguments):
    """The error says what can be written."""
    with pytest.raises(ValueError, match="write "):
        configure(stream=stream, **arguments)


def test_a_line_that_cannot_be_written_shows_nothing_of_it(stream, capsys):
    """A wrong format string or a broken stream says that a line is lost, without its arguments."""
    logging.getLogger().handlers[:] = []
    configure(style="json", stream=stream)
    logging.getLogger("shop").warning("%d", CANARY)
    stream.close()
    logging.getLogger("shop").warning("it is %s", CANARY)
    shown = capsys.readouterr().err
    assert CANARY not in shown
    assert shown.splitlines() == [
        line for line in shown.splitlines() if line.startswith("a log line is lost: ")
    ]
    assert len(shown.splitlines()) == 2


def test_other_handlers_get_clean_values_too(stream):
    """A handler of the user's own beside ours sees no password in what structlog hands on."""
    configure(style="json", stream=stream)
    seen = []
    other = logging.Handler()
    other.emit = lambda record: seen.append(record.getMessage())
    logging.getLogger().addHandler(other)
    structlog.get_logger("shop").info("hello", password=CANARY, url=f"amqp://u:{CANARY}@h")
    assert len(seen) == 1
    assert CANARY not in seen[0]


def test_an_uncaught_error_is_a_line(stream):
    """What ends a thread or the program is logged, without credentials and without forged lines."""
    logging.getLogger().handlers[:] = []
    configure(style="json", stream=stream)

    def fail():
        raise ConnectionError(f"amqp://u:{CANARY}@h\nall is well")

    thread = threading.Thread(target=fail, name="worker-1")
    thread.start()
    thread.join()
    error = raised(ConnectionError(f"amqp://u:{CANARY}@h"))
    sys.excepthook(type(error), error, error.__traceback__)
    in_thread, in_program = records(stream)
    assert (in_thread["level"], in_thread["event"]) == ("critical", "uncaught error in thread worker-1")
    assert in_program["event"] == "uncaught error"
    assert in_program["exception"].endswith("ConnectionError: amqp://u:***@h")
    assert CANARY not in stream.getvalue()


@pytest.mark.filterwarnings("ignore")
def test_uncaught_errors_are_lines_without_credentials(stream):
    """What a finalizer raises is logged, where the interpreter would print it as it is."""
    logging.getLogger().handlers[:] = []
    configure(style="json", stream=stream)

    class Ghost:
        def __del__(self):
            raise ConnectionError(f"amqp://u:{CANARY}@h")

    ghost = Ghost()
    del ghost
    (line,) = records(stream)
    assert line["event"].endswith("Ghost.__del__")
    assert line["exception"].endswith("ConnectionError: amqp://u:***@h")


def test_warnings_are_lines(stream):
    """A library's warning is logged like everything else."""
    configure(style="json", stream=stream)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        logging.captureWarnings(capture=True)
        warnings.warn("old", DeprecationWarning, stacklevel=1)
    (record,) = records(stream)
    assert (record["level"], record["logger"]) == ("warning", "py.warnings")


def test_a_services_own_logging_is_left_as_it_is(monkeypatch):
    """Without `configure` OnceMQ writes to stdlib's logger `oncemq`: one line, masked, its fields in the record."""
    monkeypatch.setattr(structlog, "is_configured", lambda: False)
    heard = logging.handlers.BufferingHandler(100)
    logger = logging.getLogger("oncemq")
    logger.addHandler(heard)
    monkeypatch.setattr(logger, "level", logging.INFO)
    try:
        log = own_logger(Redactor(["geheim"]))
        log.warning("message failed", consumer="award", exc_info=raised(ValueError("geheim")))
    finally:
        logger.removeHandler(heard)
    [record] = heard.buffer
    line, *trace = record.getMessage().splitlines()
    assert line == "message failed consumer='award'"
    assert trace[0] == "Traceback (most recent call last):"
    assert "geheim" not in record.getMessage()
    assert record.oncemq == {"consumer": "award"}


def test_a_service_with_structlog_is_heard_through_it(monkeypatch):
    """Where structlog is configured, our lines are its; log_processors() masks and names the message."""
    with structlog.testing.capture_logs(processors=log_processors(Redactor(["geheim"]))) as lines:
        monkeypatch.setattr(structlog, "is_configured", lambda: True)
        own_logger(Redactor()).info("connected", url="amqp://shop:geheim@host")
    [line] = lines
    assert "geheim" not in line["url"]


def test_no_line_comes_twice(stream):
    """What logging.basicConfig of a handler's module had set up is replaced, or each line would be shown twice."""
    root = logging.getLogger()
    console = logging.StreamHandler()
    root.addHandler(console)
    try:
        configure(stream=stream)
        assert console not in root.handlers
    finally:
        root.removeHandler(console)


class Odd(Exception):
    """Raises when it is asked for anything, as some proxies of remote errors do."""

    def __getattribute__(self, name):
        """Raise."""
        raise RuntimeError("odd")


@pytest.mark.parametrize("style", ["console", "json"])
def test_an_error_that_cannot_be_shown_takes_no_line_along(stream, style):
    """Its failed message is a line all the same, as is what was done when it came up."""
    configure(style=style, stream=stream)
    observer = LogObserver()
    delivery = Delivery(Message("order.paid", b"", message_id="m-1"))
    delivery.envelope = envelope()
    observer.retried("award", delivery, next_in=timedelta(seconds=1), error=Odd())
    observer.dead_lettered("award", delivery, code="rejected", error=Odd())
    observer.failed("purging", Odd())
    observer.consumer_paused("award", PauseReason.STRATEGY_BUG, error=Odd())
    written = stream.getvalue()
    for words in ("will be retried", "dead-lettered", "purging failed", "a strategy failed"):
        assert words in written
    assert written.count("Odd") == 4
