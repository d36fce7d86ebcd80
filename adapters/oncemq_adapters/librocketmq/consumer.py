"""A push consumer of librocketmq whose callback returns when its message is finished; nothing is ever sent back.

`RECONSUME_LATER` is never answered: it rejects the whole pulled batch, and at the retry limit the message vanishes.
"""

import os
from collections.abc import Callable, Mapping
from typing import Any

from oncemq_adapters.librocketmq import frames
from oncemq_adapters.librocketmq.library import at_once
from oncemq_adapters.librocketmq.passes import Passes

SUCCESS = 0
CRASHED = 70
"""The exit code after an error in a callback: the messages in flight are redelivered."""

MARK_OF_RETRIES, UNIQUE_ID = b"RETRY_TOPIC", b"UNIQ_KEY"
_READ = (
    "GetMessageTopic",
    "GetMessageQueueId",
    "GetMessageQueueOffset",
    "GetMessageStoreTimestamp",
    "GetMessageProperty",
)
_ERRORS_ONLY = 2
_CREDENTIALS_CHANNEL = b"ALIYUN"

Say = Callable[[frames.Frame], None]


class Consumer:
    """Starts a push consumer; it is never shut down, since that would run the pulled messages: the process exits.

    Args:
        ffi: the package's module, bound to the library.
        order: what to consume, and how to connect.
        say: tells the parent, from the library's threads, one after the other or at once.

    Attributes:
        passes: set by the parent.
    """

    def __init__(self, ffi: Any, order: Mapping[str, Any], say: Say) -> None:
        self._library = ffi.dll
        self._say = say
        self.passes = Passes()
        self._topic_of, self._queue_of, self._offset_of, self._stored_of, self._property_of = [
            at_once(self._library, name) for name in _READ
        ]
        self._callback = ffi.MSG_CALLBACK_FUNC(self._on_message)
        self._handle = self._library.CreatePushConsumer(order["group"].encode())
        if not self._handle:
            raise RuntimeError("librocketmq made no consumer")
        self._set_up(order)

    def start(self) -> None:
        """Join the group; says nothing about whether any server answers.

        Raises:
            RuntimeError: it could not; the text is the library's own.
        """
        self._check("StartPushConsumer")

    def _set_up(self, order: Mapping[str, Any]) -> None:
        self._check("SetPushConsumerNameServerAddress", order["name_servers"].encode())
        self._check("SetPushConsumerInstanceName", order["instance"].encode())
        self._check("SetPushConsumerLogPath", order["log_folder"].encode())
        self._check("SetPushConsumerLogLevel", _ERRORS_ONLY)
        self._check("SetPushConsumerThreadCount", order["threads"])
        self._check("SetPushConsumerMessageBatchMaxSize", 1)
        if order["username"]:
            login = order["username"].encode(), order["password"].encode()
            self._check("SetPushConsumerSessionCredentials", *login, _CREDENTIALS_CHANNEL)
        for topic, expression in order["topics"].items():
            self._check("Subscribe", topic.encode(), expression.encode())
        self._check("RegisterMessageCallback", self._callback)

    def _check(self, function: str, *arguments: Any) -> None:
        if int(getattr(self._library, function)(self._handle, *arguments)) != 0:
            raise RuntimeError(f"{function}: {_text(self._library.GetLatestErrorMessage())}")

    def _on_message(self, _consumer: int, message: int) -> int:
        # An error that left a callback would answer with whatever is in memory.
        try:
            identity = self._identity(message)
            waited_for = self.passes.enter(identity)
            if waited_for is None:
                self._report()
            else:
                self._say({"kind": frames.MESSAGE, "message": identity})
                waited_for.acquire()
                waited_for.release()
        except BaseException:
            os._exit(CRASHED)
        return SUCCESS

    def _report(self) -> None:
        reached = self.passes.report()
        if reached:
            self._say({"kind": frames.REACHED, "queues": list(reached.items())})

    def _identity(self, message: int) -> frames.Identity:
        """Say which message this is: librocketmq tells neither a body's length nor which properties there are."""
        return (
            # It shows a retry under the topic that it once came from.
            "" if self._property_of(message, MARK_OF_RETRIES) else _text(self._topic_of(message)),
            self._queue_of(message),
            self._offset_of(message),
            self._stored_of(message),
            _text(self._property_of(message, UNIQUE_ID)),
        )


def _text(data: bytes | None) -> str:
    return (data or b"").decode(errors="replace")
