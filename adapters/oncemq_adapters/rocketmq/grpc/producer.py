"""Publishing through a proxy: many sends in flight at once, each confirmed; a connection that stays broken is replaced."""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from concurrent.futures import wait as wait_for
from threading import Lock, Semaphore
from typing import Any

from oncemq.contracts.adapter import Confirmed, Refused
from oncemq.errors import BrokerError, BrokerRefused, BrokerUnavailable
from oncemq_adapters.rocketmq.errors import behind
from oncemq_adapters.rocketmq.grpc.client import Sender, ask_route
from oncemq_adapters.rocketmq.grpc.errors import NO_TOPIC, meaning_of, surfaced
from oncemq_adapters.rocketmq.grpc.requests import Sending, send_request
from oncemq_adapters.rocketmq.grpc.settings import Settings

Maker = Callable[[], Sending]

ANEW_AFTER = 5.0
"""Seconds of nothing but failures after which a client is replaced: the package's own does not recover by itself."""

UNUSED_TOPIC = "oncemq-is-anybody-there"
"""A topic that need not exist: the answer that it does not is an answer, too."""

_UNDER_WAY = 64


class Outbox:
    """Sends and waits for confirmations; safe for any number of threads.

    Args:
        settings: where the proxy is.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._lock = Lock()
        self._window = Semaphore(_UNDER_WAY)
        self._client: Sender | None = None
        self._failing_since: float | None = None
        self._closed = False

    def exists(self, topic: str) -> None:
        """Insist that a topic exists and we are welcome.

        Raises:
            BrokerError: it does not, or we are not, or the proxy cannot be reached.
        """
        try:
            ask_route(self._living(), topic)
        except Exception as error:
            raise surfaced(error, self._settings.shown) from error

    def welcome(self) -> None:
        """Insist that the proxy is there and we are welcome.

        Raises:
            BrokerError: it is not, or we are not.
        """
        try:
            self.exists(UNUSED_TOPIC)
        except BrokerRefused as error:
            if getattr(error, "code", 0) != NO_TOPIC:
                raise

    def send(self, messages: Sequence[Sending]) -> list[BrokerError | None]:
        """Send these at once; returns what went wrong with each, None = it is stored."""
        try:
            client = self._living()
        except BrokerError as error:
            return [error for _ in messages]
        futures = [self._begin(client, message) for message in messages]
        wait_for(futures)
        answers = [self._answer(future) for future in futures]
        self._judge(answers)
        return answers

    def close(self) -> None:
        """Disconnect."""
        with self._lock:
            self._closed = True
            client, self._client = self._client, None
        if client is not None:
            client.shutdown()

    def _begin(self, client: Sender, message: Sending) -> Future[Any]:
        self._window.acquire()
        try:
            future: Future[Any] = client.rpc_client.send_message_async(
                client.client_configuration.rpc_endpoints,
                send_request(message),
                client.sign(),
                timeout=self._settings.publish_timeout.total_seconds(),
            )
        except BaseException as error:
            self._window.release()
            future = Future()
            future.set_exception(error)
            return future
        future.add_done_callback(lambda _: self._window.release())
        return future

    def _answer(self, future: Future[Any]) -> BrokerError | None:
        try:
            answer = future.result()
        except Exception as error:
            return surfaced(error, self._settings.shown)
        statuses = [answer.status, *[entry.status for entry in answer.entries]]
        return next((error for error in map(meaning_of, statuses) if error is not None), None)

    def _judge(self, answers: Sequence[BrokerError | None]) -> None:
        broken = bool(answers) and all(isinstance(answer, BrokerUnavailable) for answer in answers)
        with self._lock:
            if not broken:
                self._failing_since = None
            elif self._failing_since is None:
                self._failing_since = time.monotonic()

    def _living(self) -> Sender:
        with self._lock:
            if self._closed:
                raise BrokerUnavailable("the RocketMQ adapter is closed")
            since = self._failing_since
            if self._client is not None and since is not None and time.monotonic() - since > ANEW_AFTER:
                stale, self._client, self._failing_since = self._client, None, None
                stale.shutdown()
            if self._client is None:
                self._client = Sender(self._settings)
                self._client.startup()
            return self._client


def one_by_one(
    keys: Sequence[str | None],
    makers: Sequence[Maker],
    publish: Callable[[Sequence[Maker]], Sequence[Confirmed | Refused]],
) -> Sequence[Confirmed | Refused]:
    """Publish messages in order; what would overtake one of its key that is not stored is not sent."""
    answers: list[Confirmed | Refused] = []
    refused: dict[str | None, Exception] = {}
    for key, maker in zip(keys, makers, strict=True):
        if key is not None and key in refused:
            answers.append(Refused(behind(refused[key])))
            continue
        (answer,) = publish([maker])
        answers.append(answer)
        if isinstance(answer, Refused):
            refused[key] = answer.error
    return answers
