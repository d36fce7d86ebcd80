"""Generated hostile messages and files in numbers: each ends as it should, in time, and none stays in memory."""

import gc
import itertools
import os
import sys
import time
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import select
from sqlalchemy.orm import Session

from oncemq.common.clock import SystemClock
from oncemq.config import load
from oncemq.contracts.adapter import AdapterScope, Confirmed
from oncemq.engine.consumer.receiver import Intake
from oncemq.errors import MessageRefused, OnceMQError
from oncemq.ledger.database.engine import make_engine
from oncemq.message.decoding import make_decoder
from oncemq.message.envelope import Delivery, Envelope, Message, OutgoingMessage
from oncemq.message.headers import REASON
from oncemq.message.reader import Reader
from oncemq_adapters.embedded.adapter import InMemoryAdapter
from oncemq_strategies.unique_key.strategy import UniqueKey
from support.brokers.readers import READERS, assert_usable
from support.declared import CATALOG
from support.effects import Base, Effect
from support.engine import make_app, make_consumer, running
from support.hostile.generated import Files, Messages
from support.units import build

LONG = os.environ.get("ONCEMQ_HOSTILE") == "long"
MESSAGES = 1_000_000 if LONG else 5_000
FILES = 100_000 if LONG else 500
THROUGH_THE_ENGINE = 50_000 if LONG else 1_500
SEED = int(os.environ.get("ONCEMQ_SEED", "1"))
SECONDS = 0.1
FLAT = 32 * 1024 * 1024
"""Bytes by which the memory of a process may grow, whatever the number of inputs."""
FLAT_BLOCKS = 50_000
NATIVE = 1024
"""Bytes that the validator's native code keeps of each refused file, measured 500 to 900; Python itself keeps nothing."""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(4 * 3600 if LONG else 300)]


def _memory() -> int:
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def _understand(intake: Intake, message: Message) -> float:
    delivery = Delivery(message)
    began = time.thread_time()
    intake.understand(delivery)
    took = time.thread_time() - began
    if delivery.refusal is None:
        assert delivery.envelope is not None
        assert_usable(delivery.envelope)
    else:
        assert isinstance(delivery.refusal, MessageRefused)
        # Any other error is an uncaught one that the intake had to save.
        assert delivery.refusal.__cause__ is None, repr(delivery.refusal.__cause__)
        assert str(delivery.refusal).isprintable()
        assert len(str(delivery.refusal)) < 500
    return took


def test_every_generated_message_is_understood_or_refused() -> None:
    """Whatever comes, the intake answers in 100 ms of CPU time by an envelope or a refusal, and keeps nothing."""
    intakes = [Intake(reader) for reader in READERS.values()]
    before = 0
    for number, message in enumerate(itertools.islice(Messages(SEED), MESSAGES)):
        if number == MESSAGES // 5:
            before = _memory()
        intake = intakes[number % len(intakes)]
        took = _understand(intake, message)
        if took > SECONDS:
            # The best of three: a collection of garbage that others left is not what is measured.
            took = min(took, *(_understand(intake, message) for _ in range(2)))
        assert took <= SECONDS, f"number {number} of seed {SEED}: {took:.3f} s"
    assert _memory() - before < FLAT


def test_every_generated_file_is_loaded_or_refused(tmp_path: Path) -> None:
    """Whatever is written, loading answers by an app or by problems that a person can read, in a moment."""
    file, before, blocks, good = tmp_path / "app.yaml", 0, 0, 0
    for number, raw in enumerate(itertools.islice(Files(SEED), FILES)):
        if number == FILES // 5:
            before, blocks = _memory(), sys.getallocatedblocks()
        file.write_bytes(raw)
        took, is_app = _load(file)
        if took > SECONDS:
            took = min(took, *(_load(file)[0] for _ in range(2)))
        assert took <= SECONDS, f"number {number} of seed {SEED}: {took:.3f} s"
        good += is_app
    assert good
    assert _memory() - before < FLAT + NATIVE * FILES
    assert sys.getallocatedblocks() - blocks < FLAT_BLOCKS


def _load(file: Path) -> tuple[float, bool]:
    began = time.thread_time()
    try:
        loaded = load([file], environment={"PASSWORD": "abc"}, catalog=CATALOG)
    except OnceMQError as error:
        took = time.thread_time() - began
        text = str(error)
        assert text
        assert text.replace("\n", "").isprintable()
        return took, False
    took = time.thread_time() - began
    if loaded.plan.engine is not None:
        loaded.plan.engine.dispose()
    return took, True


def _apply(body: dict[str, object], envelope: Envelope, session: Session) -> None:
    session.add(Effect(order_id=envelope.headers["n"], key="k"))


@pytest.mark.parametrize("seed", [SEED, SEED + 1])
def test_every_generated_message_is_applied_or_a_dead_letter_with_its_bytes(
    tmp_path: Path, seed: int
) -> None:
    """Through broker and engine each message takes effect or is dead-lettered as it was sent, and the consumer goes on."""
    engine = make_engine(f"sqlite:///{tmp_path / 'hostile.db'}")
    Base.metadata.create_all(engine)
    scope = AdapterScope("shop", "main", SystemClock())
    adapter = InMemoryAdapter.build(f"embedded://hostile{seed}", {}, scope)
    publisher = InMemoryAdapter.build(f"embedded://hostile{seed}", {}, scope)
    unique = build(UniqueKey, engine, "points")
    reader = Reader(
        "main",
        "orders",
        "points",
        key="body.order_id",
        version=None,
        identity=("headers.n",),
        decoder=make_decoder(),
    )
    consumer = replace(make_consumer(_apply, [unique]), reader=reader)
    publisher.prepare([consumer.subscription])
    sent: dict[str, bytes] = {}
    with running(make_app(adapter, engine, consumer)):
        stream = Messages(seed, large=True)
        for number in range(THROUGH_THE_ENGINE):
            message = stream.message()
            headers = {**message.headers, "n": str(number)}
            outgoing = OutgoingMessage(message.body, headers)
            if isinstance(publisher.publish("orders", {}, [outgoing])[0], Confirmed):
                sent[str(number)] = message.body
        deadline = time.monotonic() + 120 + THROUGH_THE_ENGINE / 50
        while (ended := _ended(engine, publisher, consumer.subscription)).keys() != sent.keys():
            assert time.monotonic() < deadline, f"stuck: {sorted(sent.keys() - ended.keys())[:5]}"
            # To look costs more than to work when there is much.
            time.sleep(0.2 if len(sent) < 5000 else 5)
    assert len(sent) > THROUGH_THE_ENGINE / 2
    for number, body in ended.items():
        assert body is None or body == sent[number]
    assert None in ended.values()
    publisher.close(grace=timedelta(seconds=5))
    engine.dispose()


def _ended(engine, adapter, subscription) -> dict[str, bytes | None]:
    """Return every message that has ended, with its bytes if it is a dead letter."""
    with engine.connect() as connection:
        ended: dict[str, bytes | None] = dict.fromkeys(connection.scalars(select(Effect.order_id)))
    for letter in adapter.dead_letters(subscription, 10_000_000):
        number = letter.message.headers["n"]
        assert number not in ended, f"{number} ended twice"
        assert letter.message.headers[REASON]
        ended[number] = letter.message.body
    return ended
