"""Bare librocketmq by rocketmq-client-python: 4 threads, nothing is read, nothing is done. Runs in an environment of its own."""

import os
import signal
from typing import Any
from urllib.parse import urlsplit

from benchmarks.peers.counting import counter
from benchmarks.peers.environment import FOLDER, QUEUE, ROCKETMQ, told
from oncemq_adapters.librocketmq.library import find, load

THREADS = 4


def main() -> None:
    """Run until the process is ended: the library hangs when it shall shut down in order."""
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    library = find(None, os.environ)
    # It writes its log into the home folder.
    os.environ["HOME"] = told(FOLDER)
    load(library)
    from rocketmq.client import ConsumeStatus, PushConsumer  # noqa: PLC0415 - binds the library when it is imported

    url = urlsplit(told(ROCKETMQ))
    one_more = counter()

    def on_message(_message: Any) -> Any:
        one_more()
        return ConsumeStatus.CONSUME_SUCCESS

    consumer = PushConsumer(told(QUEUE))
    consumer.set_name_server_address(f"{url.hostname}:{url.port}")
    consumer.set_session_credentials(url.username, url.password, "ALIYUN")
    consumer.set_thread_count(THREADS)
    consumer.subscribe(told(QUEUE), on_message)
    consumer.start()
    while True:
        signal.pause()


if __name__ == "__main__":
    main()
