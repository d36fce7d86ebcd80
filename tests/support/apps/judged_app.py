"""An app whose every effect can be counted from outside, and the judge who counts.

The effect table has no unique constraint, so a double effect shows as a second row. The handler also writes a
line to a plain file when it begins, which no roll-back removes: that is how the judge knows what was tried.
"""

import json
import random
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta

from sqlalchemy import create_engine, text

from oncemq.config import load
from oncemq.contracts.adapter import Confirmed, DeadLetter, Refused
from oncemq.engine.plan import AppPlan
from oncemq.message.envelope import OutgoingMessage
from support.apps.warm import WarmProgram
from support.brokers.places import Place

CONSUMER = "judge"
_APP = """
app: {name}
brokers: {{main: {{url: "${{BROKER}}"}}}}
database: {{url: "${{DATABASE}}"}}
grace: 10s
topics:
  {name}:
    key: body.key
    identity: body.id
    strategies: [unique_key]{options}
consumers:
  judge:
    topic: {name}
    handler: "handlers:apply"
    retry: {{attempts: {attempts}, backoff: {{first: 100ms, factor: 1}}}}
"""
_HANDLERS = '''"""What happens for each event: one row, one line in a file, and sometimes a disaster."""

import os
import signal
import time
from pathlib import Path

from pydantic import BaseModel
from sqlalchemy import String, create_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from oncemq import Envelope

TRIED = Path(__file__).with_name("tried.log")


class Base(DeclarativeBase):
    """The table of effects."""


class Effect(Base):
    """One effect."""

    __tablename__ = "effects"

    number: Mapped[int] = mapped_column(primary_key=True)
    id: Mapped[str] = mapped_column(String(64))
    attempt: Mapped[int]
    process: Mapped[int]


class Event(BaseModel):
    """What a message says."""

    id: str
    key: str
    deadly: bool = False


def apply(event: Event, envelope: Envelope, session: Session) -> None:
    """Write down the effect, slowly enough to be killed in the middle of a unit."""
    with TRIED.open("a") as file:
        file.write(f"{os.getpid()} {event.id}\\n")
    session.add(Effect(id=event.id, attempt=envelope.attempt, process=os.getpid()))
    time.sleep(0.002)
    if event.deadly:
        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    Base.metadata.create_all(create_engine(os.environ["DATABASE"]))
'''


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the judge found.

    Args:
        lost: ids that were confirmed to the publisher and had no effect.
        double: ids with more than one effect.
        invented: effects of ids that no one published.
        charged: ids whose effect came at a later attempt than the first.
    """

    lost: frozenset[str]
    double: frozenset[str]
    invented: frozenset[str]
    charged: frozenset[str]


class JudgedApp:
    """The app in `place`, ready to run: tables and queues exist.

    Args:
        place: where it runs.
        attempts: how often a message is tried.
        options: of its topic, for the broker.

    Attributes:
        program: runs `oncemq` on it.
        confirmed: ids that the broker has confirmed, as often as it has.
    """

    def __init__(self, place: Place, attempts: int = 6, **options: str) -> None:
        self.place = place
        self.program = WarmProgram(place.folder, place.environment)
        self.confirmed: Counter[str] = Counter()
        lines = "".join(f"\n    {name}: {value}" for name, value in options.items())
        app = _APP.format(name=place.name, attempts=attempts, options=lines)
        (place.folder / "app.yaml").write_text(app)
        (place.folder / "handlers.py").write_text(_HANDLERS)
        self._tried = place.folder / "tried.log"
        self.program.succeed("tables", "create")
        made = self.program.python("handlers.py")
        assert made.returncode == 0, made.stderr

    def plan(self) -> AppPlan:
        """Return the app as this process would run it."""
        return load([self.place.folder / "app.yaml"], environment=self.place.environment).plan

    def publish(
        self, ids: Sequence[str], *, keys: int = 20, twice: float = 0.3, deadly: Iterable[str] = ()
    ) -> None:
        """Publish an event for each id, a share of them twice under another message id, shuffled."""
        draw = random.Random(1)
        sends = [*ids, *draw.sample(list(ids), round(twice * len(ids)))]
        draw.shuffle(sends)
        fatal = set(deadly)
        messages = [
            OutgoingMessage(
                json.dumps(
                    {"id": number, "key": f"key-{hash_of(number) % keys}", "deadly": number in fatal}
                ).encode(),
                message_id=f"{number}-{place}",
            )
            for place, number in enumerate(sends)
        ]
        answers = self.send(messages)
        self.confirmed.update(
            message for message, answer in zip(sends, answers, strict=True) if isinstance(answer, Confirmed)
        )

    def send(self, messages: Sequence[OutgoingMessage]) -> Sequence[Confirmed | Refused]:
        """Publish these as they are."""
        plan = self.plan()
        adapter, target = plan.adapters["main"], plan.consumers[0].subscription
        adapter.prepare([target])
        try:
            return adapter.publish(target.topic, target.options, messages)
        finally:
            adapter.close(grace=timedelta(seconds=5))

    def tried(self) -> list[tuple[int, str]]:
        """Return (process, id) for every time the handler began, in order."""
        lines = self._tried.read_text().splitlines() if self._tried.exists() else []
        pairs = [line.partition(" ") for line in lines]
        return [(int(process), number) for process, _, number in pairs]

    def effects(self) -> list[tuple[str, int, int]]:
        """Return (id, attempt, process) of every effect."""
        engine = create_engine(self.place.database)
        try:
            with engine.connect() as connection:
                rows = connection.execute(text("SELECT id, attempt, process FROM effects ORDER BY number"))
                return [(row[0], row[1], row[2]) for row in rows]
        finally:
            engine.dispose()

    def all_applied(self, but: Iterable[str] = ()) -> bool:
        """Return whether every confirmed id has an effect."""
        return self.confirmed.keys() - set(but) <= {identity for identity, _, _ in self.effects()}

    def judge(self) -> Verdict:
        """Return what is wrong."""
        effects = self.effects()
        counted = Counter(identity for identity, _, _ in effects)
        return Verdict(
            lost=frozenset(self.confirmed.keys() - counted.keys()),
            double=frozenset(identity for identity, count in counted.items() if count > 1),
            invented=frozenset(counted.keys() - self.confirmed.keys()),
            charged=frozenset(identity for identity, attempt, _ in effects if attempt > 1),
        )

    def dead_letters(self) -> list[DeadLetter]:
        """Return every dead letter of the app."""
        plan = self.plan()
        adapter, target = plan.adapters["main"], plan.consumers[0].subscription
        adapter.prepare([target])
        try:
            return list(adapter.dead_letters(target, 10_000))
        finally:
            adapter.close(grace=timedelta(seconds=5))


def hash_of(text_: str) -> int:
    """Return the same number for the same text in every process."""
    return sum(text_.encode())


def fine() -> Verdict:
    """Return the verdict on an app that kept its promise."""
    return Verdict(frozenset(), frozenset(), frozenset(), frozenset())
