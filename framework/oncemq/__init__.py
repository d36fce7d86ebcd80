"""OnceMQ: consume from message brokers so that every business message takes effect once."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from oncemq.app import App
    from oncemq.app_routes import ConsumerRoutes
    from oncemq.contracts.final_failure import FinalFailure
    from oncemq.contracts.publisher import Publisher
    from oncemq.contracts.strategy import FencingToken
    from oncemq.contracts.verification import Done, NotDone, Unknown
    from oncemq.engine.publishers.app_publisher import AppPublisher, NewMessage
    from oncemq.engine.publishers.async_app_publisher import AsyncAppPublisher
    from oncemq.engine.publishers.transactional_publisher import TransactionalPublisher
    from oncemq.errors import (
        BadItems,
        ConfigError,
        OnceMQError,
        PartlyPublished,
        Reject,
        RequestFailed,
        RequestTimeout,
        Retry,
        Unpublishable,
        Unroutable,
    )
    from oncemq.handler.batch import Batch
    from oncemq.handler.middlewares import AppliedMessage, HandlerCall
    from oncemq.message.envelope import Envelope
    from oncemq.message.outgoing import Publishing
    from oncemq.operate.dead_letters import AppDeadLetter, DeadLetters
    from oncemq.publishers import open_async_publisher, open_publisher, publisher_of
    from oncemq.retry.unique import UniqueViolation

__version__ = "0.1.0"

__all__ = [
    "App",
    "AppDeadLetter",
    "AppPublisher",
    "AppliedMessage",
    "AsyncAppPublisher",
    "BadItems",
    "Batch",
    "ConfigError",
    "ConsumerRoutes",
    "DeadLetters",
    "Done",
    "Envelope",
    "FencingToken",
    "FinalFailure",
    "HandlerCall",
    "NewMessage",
    "NotDone",
    "OnceMQError",
    "PartlyPublished",
    "Publisher",
    "Publishing",
    "Reject",
    "RequestFailed",
    "RequestTimeout",
    "Retry",
    "Session",
    "TransactionalPublisher",
    "UniqueViolation",
    "Unknown",
    "Unpublishable",
    "Unroutable",
    "log_processors",
    "open_async_publisher",
    "open_publisher",
    "publisher_of",
]

_HOMES = {
    "App": "oncemq.app",
    "AppDeadLetter": "oncemq.operate.dead_letters",
    "AppliedMessage": "oncemq.handler.middlewares",
    "AppPublisher": "oncemq.engine.publishers.app_publisher",
    "AsyncAppPublisher": "oncemq.engine.publishers.async_app_publisher",
    "BadItems": "oncemq.errors",
    "Batch": "oncemq.handler.batch",
    "ConfigError": "oncemq.errors",
    "ConsumerRoutes": "oncemq.app_routes",
    "DeadLetters": "oncemq.operate.dead_letters",
    "Done": "oncemq.contracts.verification",
    "Envelope": "oncemq.message.envelope",
    "FencingToken": "oncemq.contracts.strategy",
    "FinalFailure": "oncemq.contracts.final_failure",
    "HandlerCall": "oncemq.handler.middlewares",
    "NewMessage": "oncemq.engine.publishers.app_publisher",
    "NotDone": "oncemq.contracts.verification",
    "OnceMQError": "oncemq.errors",
    "PartlyPublished": "oncemq.errors",
    "Publisher": "oncemq.contracts.publisher",
    "Publishing": "oncemq.message.outgoing",
    "Reject": "oncemq.errors",
    "RequestFailed": "oncemq.errors",
    "RequestTimeout": "oncemq.errors",
    "Retry": "oncemq.errors",
    "Session": "sqlalchemy.orm",
    "TransactionalPublisher": "oncemq.engine.publishers.transactional_publisher",
    "UniqueViolation": "oncemq.retry.unique",
    "Unknown": "oncemq.contracts.verification",
    "Unpublishable": "oncemq.errors",
    "Unroutable": "oncemq.errors",
    "log_processors": "oncemq.observe.logs",
    "open_async_publisher": "oncemq.publishers",
    "open_publisher": "oncemq.publishers",
    "publisher_of": "oncemq.publishers",
}


def __getattr__(name: str) -> Any:
    """Import a public name on first use, so that `import oncemq` costs nothing."""
    if name not in _HOMES:
        raise AttributeError(f"module 'oncemq' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    """Return the public names, for completion."""
    return sorted(__all__)
