"""One app under attack as a test sees it: a folder, messages, children, faults that are counted, and a verdict."""

import json
import os
import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from threading import Event
from time import monotonic
from typing import Any

from sqlalchemy import create_engine, text

from storm.attack.child import APP, MESSAGES, Order
from storm.attack.files import FIRED, TRIED, lines
from storm.attack.handlers import Base
from storm.attack.look import Look
from storm.attack.nursery import TESTS, Child, Nursery
from storm.oracle.collect import letters
from storm.oracle.evidence import Fate, Fault, Letter
from storm.oracle.process import Question, ask
from support.apps.warm import WarmProgram
from support.brokers.places import Place
from support.patience import PATIENCE

CONSUMER = "judge"
STATES = ("purchased", "approved", "shipped", "delivered")
TRACK = "{state_machine: {to: body.state, states: [purchased, approved, shipped, delivered]}}"
DEADLY = ("reject", "raises", "writes", "swallows", "kills", "hangs", "eats")
HARMLESS = ("plain", "flaky", "transient", "depends", "sets", "mixes")
FATES = {kind: [Fate.DEAD] for kind in DEADLY} | {kind: [Fate.APPLIED] for kind in HARMLESS}
_APP = """
app: {name}
brokers: {{main: {{url: "${{BROKER}}"}}}}
database: {{url: "${{DATABASE}}"}}
grace: {grace}
topics:
  {name}: {{key: body.key, identity: body.id, strategies: [{strategies}]}}
consumers:
  judge:
    topic: {name}
    handler: "storm.attack.handlers:apply"
    retry: {{attempts: {attempts}, backoff: {{first: {first}, factor: {factor}, max: {most}}}}}
    {more}
"""


@dataclass(frozen=True, slots=True)
class Settings:
    """How the app under attack is set.

    Args:
        attempts: tries of a message.
        first: the first pause.
        factor: of the pauses.
        most: the longest pause.
        strategies: the chain, as in YAML.
        more: further lines of the consumer.
        grace: for a drain.
        pause: seconds that every handler takes.
    """

    attempts: int = 6
    first: str = "100ms"
    factor: float = 1
    most: str = "10s"
    strategies: str = "unique_key"
    more: str = ""
    grace: str = "10s"
    pause: float = 0.0


@dataclass(slots=True)
class Verdict:
    """What the oracle has found."""

    violations: list[dict[str, str]]
    counts: dict[str, Any]
    seconds: float = 0.0
    faults: list[Fault] = field(default_factory=list)

    def __str__(self) -> str:
        kinds = Counter(violation["kind"] for violation in self.violations)
        first = [
            f"{violation['kind']}: {violation['what']}: {violation['detail']}"
            for violation in self.violations[:20]
        ]
        return "\n".join([str(dict(kinds)), *first, str(self.counts)])


class Stage:
    """The app in `place`: tables and queues exist, children can be started.

    Args:
        place: its broker and database.
        nursery: starts its children.
        settings: of the app.
        environment: what its processes connect to, where that is not the place itself (a proxy).
    """

    def __init__(
        self,
        place: Place,
        nursery: Nursery,
        settings: Settings = Settings(),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.place = place
        self.folder = place.folder
        self.nursery = nursery
        self.settings = settings
        self.environment = {**place.environment, "STORM_PAUSE": str(settings.pause), **(environment or {})}
        self.asked: Counter[str] = Counter()
        self.fired: Counter[str] = Counter()
        self.started = monotonic()
        self._lines = 0
        self._look = Look(place.database)
        nursery.at_the_end(self._look.close)
        values = {**{name: getattr(settings, name) for name in settings.__slots__}, "name": place.name}
        (self.folder / APP).write_text(_APP.format(**values))
        engine = create_engine(place.database)
        Base.metadata.create_all(engine)
        engine.dispose()
        program = WarmProgram(self.folder, {**place.environment, "PYTHONPATH": str(TESTS)})
        program.succeed("tables", "create")

    @property
    def group(self) -> str:
        """The consumer's group."""
        return f"{self.place.name}-{CONSUMER}"

    def write(self, bodies: Iterable[Mapping[str, Any]]) -> tuple[int, int]:
        """Add messages to the file of what is to be sent; returns their first line and the one after the last."""
        first = self._lines
        with (self.folder / MESSAGES).open("a") as file:
            for body in bodies:
                file.write(json.dumps(body) + "\n")
                self._lines += 1
        return first, self._lines

    def publisher(self, span: tuple[int, int], **more: Any) -> Child:
        """Start a process that publishes these lines."""
        return self._start("publish", first=span[0], last=span[1], **more)

    def publish(self, bodies: Iterable[Mapping[str, Any]], **more: Any) -> None:
        """Publish messages and wait until the broker has all."""
        child = self.publisher(self.write(bodies), **more)
        assert child.wait(120) == 0, self.nursery.said()

    def consumer(self, **more: Any) -> Child:
        """Start a process that consumes."""
        return self._start("consume", **more)

    def _start(self, task: str, **more: Any) -> Child:
        return self.nursery.start(Order(task, str(self.folder), dict(self.environment), **more))

    def happened(self, name: str, *, fired: bool = True) -> None:
        """Count a fault that was asked for, and whether it is known to have happened."""
        self.asked[name] += 1
        self.fired[name] += fired

    def times(self, name: str) -> int:
        """Return how often a fault is known to have happened."""
        return self.fired[name]

    def applied(self, process: int | None = None) -> int:
        """Return how many effects there are now, of one process or of all."""
        whose = "" if process is None else " WHERE process = :process"
        query = text(f"SELECT count(*) FROM storm_effects{whose}")
        return self._look.scalar(query, {"process": process} if whose else {})

    def dead(self) -> list[Letter]:
        """Return the dead letters there are now."""
        return letters(self.place.broker, self.group, self.place.name)

    def tries(self) -> int:
        """Return how many handlers have begun."""
        path = self.folder / TRIED
        return path.read_bytes().count(b"\n") if path.exists() else 0

    def has_begun(self, process: int) -> bool:
        """Return whether this process has begun a handler."""
        path = self.folder / TRIED
        return path.exists() and any(line[0] == str(process) for line in lines(path))

    def deaths(self) -> Sequence[Sequence[str]]:
        """Return point and process of every death at a point."""
        return list(lines(self.folder / FIRED))

    def drain(self, *, idle: str = "2s", timeout: float = 120) -> None:
        """Run one process that is left in peace, until nothing comes any more."""
        code = self.consumer(until_idle=idle).wait(timeout)
        assert code == 0, f"the last process ended with {code}\n{self.nursery.said()}"

    def verdict(self, **promise: Any) -> Verdict:
        """Ask the oracle, which is a process of its own, and finds no session of this one in the database."""
        self._look.close()
        promised = {"fates": FATES, "attempts": self.settings.attempts, **promise}
        faults = [Fault(name, count, self.fired[name]) for name, count in sorted(self.asked.items())]
        place = self.place
        question = Question(
            str(self.folder),
            place.broker,
            place.database,
            self.group,
            place.name,
            promised,
            [asdict(fault) for fault in faults],
        )
        return Verdict(**ask(question), seconds=monotonic() - self.started, faults=faults)


def bodies(
    count: int,
    *,
    prefix: str,
    kinds: Mapping[str, float] | None = None,
    keys: int = 20,
    twice: float = 0.3,
    seed: int = 1,
) -> list[dict[str, Any]]:
    """Return messages: so many different ones, a share of them twice, kinds drawn by their shares, shuffled a little."""
    draw = random.Random(seed)
    names, shares = ["plain", *(kinds or {})], [1 - sum((kinds or {}).values()), *(kinds or {}).values()]
    found = [
        {"id": f"{prefix}{number}", "key": f"key-{number % keys}", "kind": draw.choices(names, shares)[0]}
        for number in range(count)
    ]
    return found + draw.sample(found, round(twice * count))


def wait_for(reached: Any, wanted: str, timeout: float = 60.0, pause: float = 0.02) -> float:
    """Wait for a state of other processes, longer on a slow machine; returns the seconds it took."""
    timeout *= PATIENCE
    started, rest = monotonic(), Event()
    while not reached():
        if monotonic() - started > timeout:
            raise AssertionError(f"waited {timeout:.0f} s for {wanted}")
        rest.wait(pause)
    return monotonic() - started


def report(name: str, verdict: Verdict, **more: Any) -> None:
    """Leave the numbers where `make storm` and people find them."""
    row = {
        "test": name,
        "seconds": round(verdict.seconds, 1),
        **more,
        "faults": {fault.name: fault.fired for fault in verdict.faults},
        **verdict.counts,
    }
    with Path(os.environ.get("ONCEMQ_STORM_REPORT", os.devnull)).open("a") as file:
        file.write(json.dumps(row) + "\n")
