"""A push consumer of librocketmq whose callback waits until its message is finished; nothing is ever sent back.

`RECONSUME_LATER` is never answered: it rejects the whole pulled batch, and at the retry limit the message vanishes.
"""

import itertools
import os
from collections.abc import Callable, Mapping
from threading import Lock
from typing import Any

from oncemq_adapters.librocketmq import frames

SUCCESS = 0
CRASHED = 70
"""The exit code after an error in a callback: whoever held messages gets them again."""

MARK_OF_RETRIES, UNIQUE_ID = b"RETRY_TOPIC", b"UNIQ_KEY"
_ERRORS_ONLY = 2
_CREDENTIALS_CHANNEL = b"ALIYUN"

Receive = Callable[[Mapping[str, Any]], None]


class Consumer:
    """Starts a push consumer; it is never shut down, since that would run what was pulled: the process leaves.

    Args:
        ffi: the package's module, bound to the library.
        order: what to consume, and how to connect.
        receive: told of each message, from the library's threads, one after the other or at once.
    """

    def __init__(self, ffi: Any, order: Mapping[str, Any], receive: Receive) -> None:
        self._library = ffi.dll
        self._receive = receive
        self._numbers = itertools.count()
        self._waiting: dict[int, Lock] = {}
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

    def done(self, number: int) -> None:
        """Let the callback of a message return."""
        lock = self._waiting.pop(number, None)
        if lock is not None:
            lock.release()

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
            held = Lock()
            held.acquire()
            number = next(self._numbers)
            self._waiting[number] = held
            self._receive(self._described(number, message))
            held.acquire()
        except BaseException:
            os._exit(CRASHED)
        return SUCCESS

    def _described(self, number: int, message: int) -> Mapping[str, Any]:
        """Say where a message lies: librocketmq tells neither a body's length nor which properties there are."""
        library = self._library
        return {
            "kind": frames.MESSAGE,
            "number": number,
            "topic": _text(library.GetMessageTopic(message)),
            "retry": bool(library.GetMessageProperty(message, MARK_OF_RETRIES)),
            "queue": library.GetMessageQueueId(message),
            "offset": library.GetMessageQueueOffset(message),
            "id": _text(library.GetMessageProperty(message, UNIQUE_ID)),
        }


def _text(data: bytes | None) -> str:
    return (data or b"").decode(errors="replace")
