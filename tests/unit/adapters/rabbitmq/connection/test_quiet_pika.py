"""pika's own log lines: which of them a user sees."""

import logging
from collections.abc import Iterator

import pytest

from oncemq.observe import logs
from oncemq_adapters.rabbitmq.connection.link import quiet_pika
from support.brokers.rabbitmq import adapter_on

_NAMES = ("", "pika", "pika.channel", "sqlalchemy", "asyncio", "urllib3")


@pytest.fixture(autouse=True)
def _levels_of_their_own() -> Iterator[None]:
    root = logging.getLogger()
    handlers, levels = list(root.handlers), {name: logging.getLogger(name).level for name in _NAMES}
    for name in ("pika", "pika.channel"):
        logging.getLogger(name).setLevel(logging.NOTSET)
    yield
    root.handlers[:] = handlers
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)


def _shows(name: str, level: int) -> bool:
    return logging.getLogger(name).isEnabledFor(level)


def test_a_start_shows_no_refused_questions() -> None:
    """With the log of `oncemq run` a queue that is not there is no warning: whether it is there was the question."""
    logs.configure()
    quiet_pika()
    assert not _shows("pika.channel", logging.WARNING)
    assert _shows("pika.channel", logging.ERROR)
    assert _shows("pika.connection", logging.WARNING)


def test_the_log_may_be_configured_after_the_app_is_built(rabbitmq_url: str) -> None:
    """As `oncemq run` does it: when the first questions are asked, their answers are no warnings."""
    adapter = adapter_on(rabbitmq_url)
    logs.configure()
    adapter.prepare([])
    assert not _shows("pika.channel", logging.WARNING)
    assert _shows("pika.connection", logging.WARNING)


def test_without_logging_pika_says_nothing() -> None:
    """A program that configures no logging sees no tracebacks of pika."""
    quiet_pika()
    assert not _shows("pika.channel", logging.ERROR)


def test_lines_that_are_asked_for_are_shown() -> None:
    """Who sets a level for pika gets its lines, those of channels too."""
    logging.getLogger("pika").setLevel(logging.DEBUG)
    quiet_pika()
    assert _shows("pika.channel", logging.DEBUG)
