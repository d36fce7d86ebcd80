"""One random case: an app or two, messages with faults, a broker that forgets; and the oracle that judges what came of it."""

import json
import random
from collections import Counter, defaultdict
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from sqlalchemy import Engine, delete, event, select
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session

from oncemq.contracts.strategy import Strategy
from oncemq.handler.batch import Batch
from oncemq.ledger.database.engine import make_engine
from oncemq.ledger.records import processed, states
from oncemq.message.envelope import Envelope, Message
from oncemq.retry.backoff import RetryPolicy
from oncemq_strategies.state_machine.strategy import StateMachine
from oncemq_strategies.unique_key.strategy import UniqueKey
from support.effects import Effect, Shared, empty
from support.engine import make_app, make_consumer, running
from support.model.random_broker import TAG, RandomBroker
from support.model.random_faults import (
    AFTER,
    BEFORE,
    EXPIRE_ALL,
    HARMLESS,
    INFRASTRUCTURE,
    STYLES,
    FaultyHandler,
    Ride,
)
from support.units import build

STATES = [f"s{number}" for number in range(1, 9)]
CHAINS = (
    ("unique_key",),
    ("unique_key",),
    ("state_machine",),
    ("unique_key", "state_machine"),
    ("state_machine", "unique_key"),
    ("rides",),
    ("unique_key", "rides"),
    ("rides", "unique_key"),
)
CHARGING = (*BEFORE, *AFTER)
FAULTS = (*CHARGING, *HARMLESS, EXPIRE_ALL, INFRASTRUCTURE)


@dataclass(frozen=True)
class Copy:
    """One copy of a business message.

    Args:
        tag: tells it from its siblings.
        order: its body.
    """

    tag: str
    order: dict[str, Any]

    @property
    def charges(self) -> int:
        """How many attempts it may cost."""
        return sum(fault in CHARGING for fault in self.order["faults"])


class Case:
    """What is drawn from one seed.

    Args:
        seed: of everything.
        engine: the database.
    """

    def __init__(self, seed: int, engine: Engine) -> None:
        self.engine = engine
        self.name = f"c{seed}x{random.SystemRandom().getrandbits(40):x}"
        draw = self.draw = random.Random(seed)
        self.chain = draw.choice(CHAINS)
        self.processes = draw.choice([1, 1, 2])
        self.workers = draw.choice([1, 1, 2, 3])
        self.limit = draw.choice([1, 2, 5, 500])
        self.unit_time = timedelta(milliseconds=draw.choice([1, 50, 200]))
        self.batch_handler = draw.random() < 0.2
        self.faulty = draw.choice([0.0, 0.05, 0.3, 0.6])
        self.lost_commits = draw.choice([0.0, 0.0, 0.05])
        self.broker = RandomBroker(seed, self.processes, draw.choice([0.0, 0.1]))
        self.connections_lost = draw.choice([0, 0, 2])
        self.handler = FaultyHandler(with_ride="rides" in self.chain, many=self.batch_handler)
        self.calls: list[tuple[str, int]] = []
        self.losing = False
        self.copies = self._copies()

    def __repr__(self) -> str:
        return (
            f"{self.chain} processes={self.processes} workers={self.workers} limit={self.limit} "
            f"unit_time={self.unit_time} batch={self.batch_handler} faulty={self.faulty} "
            f"lost_commits={self.lost_commits} connections_lost={self.connections_lost} {len(self.copies)} copies"
        )

    def _copies(self) -> list[Copy]:
        draw, copies = self.draw, []
        count, keys = draw.choice([5, 20, 60]), draw.choice([1, 3, 8])
        for key in range(keys):
            for version in range(1, 1 + min(len(STATES), max(1, count // keys))):
                for _ in range(1 + (draw.random() < 0.3) + (draw.random() < 0.1)):
                    copies.append(self._copy(f"k{key}", version, f"t{len(copies)}"))
        if draw.random() < 0.7:
            draw.shuffle(copies)
        return copies

    def _copy(self, key: str, version: int, tag: str) -> Copy:
        draw = self.draw
        faults = draw.choices(FAULTS, k=draw.choice([1, 2])) if draw.random() < self.faulty else []
        order = {
            "id": f"{key}:{version}",
            "key": key,
            "version": version,
            "to": STATES[version - 1],
            "tag": tag,
            "faults": faults,
            "style": draw.choice(STYLES),
        }
        return Copy(tag, order)

    def run(self) -> None:
        """Publish everything, and wait until every copy has ended."""
        empty(self.engine, shared=4)
        with self.engine.begin() as connection:
            connection.execute(delete(Ride))
        with ExitStack() as stack:
            for front in self.broker.fronts:
                engine = make_engine(self.engine.url.render_as_string(hide_password=False))
                self._lose_commits(engine)
                stack.enter_context(running(make_app(front, engine, self._consumer(engine))))
            self.losing = True
            losses = set(self.draw.sample(range(len(self.copies)), self.connections_lost))
            for number, copy in enumerate(self.copies):
                body = json.dumps(copy.order).encode()
                self.broker.publish(Message("orders", body, headers={TAG: copy.tag}))
                if number in losses:
                    self.draw.choice(self.broker.fronts).lose()
            open_ = self.broker.wait_for({copy.tag for copy in self.copies}, timedelta(seconds=30))
            self.losing = False
        if open_:
            self.broker.wrong.append(f"never ended: {sorted(open_)}")

    def _consumer(self, engine: Engine) -> Any:
        handler = self._handle_batch if self.batch_handler else self._handle
        return make_consumer(
            handler,
            self._strategies(engine),
            name=self.name,
            version="body.version",
            identity=("key", "version"),
            workers=self.workers,
            batch_limit=self.limit,
            unit_time=self.unit_time,
            retry=RetryPolicy(attempts=6, first=timedelta(milliseconds=1)),
        )

    def _strategies(self, engine: Engine) -> list[Strategy]:
        kinds: dict[str, tuple[type[Strategy], dict[str, Any]]] = {
            "unique_key": (UniqueKey, {}),
            "state_machine": (StateMachine, {"to": "body.to", "states": STATES}),
            "rides": (
                StateMachine,
                {
                    "to": "body.to",
                    "states": STATES,
                    "entity": {"table": "rides", "key": "key", "state": "status"},
                },
            ),
        }
        return [build(kinds[name][0], engine, self.name, kinds[name][1]) for name in self.chain]

    def _handle(self, order: dict[str, Any], envelope: Envelope, session: Session) -> None:
        self.calls.append((order["tag"], envelope.attempt))
        self.handler(order, envelope.attempt, session)

    def _handle_batch(self, batch: Batch[dict[str, Any]], session: Session) -> None:
        for order, envelope in zip(batch, batch.envelopes, strict=True):
            self._handle(order, envelope, session)

    def _lose_commits(self, engine: Engine) -> None:
        """Let some commits fail, before or after they have happened."""
        share, draw = self.lost_commits, random.Random(self.draw.random())

        def lose(connection: Any) -> None:
            if self.losing and draw.random() < share:
                if draw.random() < 0.5:
                    connection.connection.driver_connection.commit()
                raise OperationalError("COMMIT", {}, Exception("lost"), connection_invalidated=True)

        if share:
            event.listen(engine, "commit", lose)


class Oracle:
    """Reads the database after a case and says everything that is wrong.

    Args:
        case: a case that has been run.
    """

    def __init__(self, case: Case) -> None:
        self.case = case
        self.wrong = list(case.broker.wrong)
        scope = f"shop.{case.name}"
        with case.engine.connect() as connection:
            self.effects = [
                (row.order_id, row.key)
                for row in connection.execute(select(Effect.order_id, Effect.key).order_by(Effect.id))
            ]
            seen = processed.TABLE
            self.seen = set(connection.scalars(select(seen.c.identity).where(seen.c.consumer == scope)))
            held = states.TABLE
            self.states = {
                row.key: row.state
                for row in connection.execute(
                    select(held.c.key, held.c.state).where(held.c.consumer == scope)
                )
            }
            self.points = {row.id: row.points for row in connection.execute(select(Shared.id, Shared.points))}
            self.rides = {
                row.key: (row.status, row.effects)
                for row in connection.execute(select(Ride.key, Ride.status, Ride.effects))
            }
        self.identities = [identity for identity, _ in self.effects]
        self.versions: dict[str, list[int]] = defaultdict(list)
        for identity, key in self.effects:
            if identity != "BAD":
                self.versions[key].append(int(identity.rpartition(":")[2]))

    def judge(self) -> list[str]:
        """Return everything that is wrong; empty when all is well."""
        self._nothing_twice()
        self._nothing_lost()
        self._nothing_left_behind()
        self._innocents()
        self._order()
        return self.wrong

    def _say(self, what: str, which: Any) -> None:
        if which:
            self.wrong.append(f"{what}: {which}")

    def _ended(self, how: str) -> set[str]:
        ended = self.case.broker.ended
        return {copy.order["id"] for copy in self.case.copies if ended.get(copy.tag, "").startswith(how)}

    def _nothing_twice(self) -> None:
        self._say("twice", [identity for identity, count in Counter(self.identities).items() if count > 1])

    def _nothing_lost(self) -> None:
        lost = self._ended("acknowledged") - set(self.identities)
        if self.case.chain != ("unique_key",):
            lost = {place for place in lost if not self._overtaken(place)}
        self._say("acknowledged without effect", sorted(lost))
        tried = [
            copy.tag
            for copy in self.case.copies
            if self.case.broker.retries[copy.tag]
            and self.case.broker.ended.get(copy.tag) == "acknowledged"
            and copy.order["id"] not in self.identities
        ]
        self._say("tried, failed and acknowledged without effect", tried)

    def _overtaken(self, identity: str) -> bool:
        key, _, version = identity.rpartition(":")
        return any(later > int(version) for later in self.versions[key])

    def _nothing_left_behind(self) -> None:
        case, known = self.case, set(self.identities)
        self._say("rows of failed handlers", [identity for identity in self.identities if identity == "BAD"])
        self._say("changes of failed handlers", self.points[3])
        styles = Counter(case_copy.order["style"] for case_copy in self._applied())
        for number, style in ((1, "shared"), (2, "shared"), (4, "change")):
            if all(len({sibling.order["style"] for sibling in self._siblings(i)}) == 1 for i in known):
                self._say(f"points of {style}", self.points[number] - styles[style])
        if "unique_key" in case.chain:
            self._say("effects without a dedup row", sorted(known - self.seen))
            self._say(
                "dedup rows of messages that never ended well",
                sorted(self.seen - known),
            )
        last = {key: STATES[max(versions) - 1] for key, versions in self.versions.items()}
        if "state_machine" in case.chain and self.states != last:
            self._say("states", (self.states, last))
        if "rides" in case.chain:
            real = {key: (last[key], len(versions)) for key, versions in self.versions.items()}
            self._say("rides", (self.rides, real) if self.rides != real else None)

    def _siblings(self, identity: str) -> Sequence[Copy]:
        return [copy for copy in self.case.copies if copy.order["id"] == identity]

    def _applied(self) -> Sequence[Copy]:
        return [self._siblings(identity)[0] for identity in self.identities if identity != "BAD"]

    def _innocents(self) -> None:
        case = self.case
        charged = [
            (copy.tag, case.broker.retries[copy.tag], copy.order["faults"])
            for copy in case.copies
            if case.broker.retries[copy.tag] > copy.charges
        ]
        self._say("charged more than they failed", charged)
        dead = [
            copy.tag
            for copy in case.copies
            if case.broker.ended.get(copy.tag, "").startswith("dead")
            and "reject" not in copy.order["faults"]
            and not self._taken(copy)
        ]
        self._say("dead-lettered without a reject", dead)

    def _taken(self, copy: Copy) -> bool:
        """Whether a copy that failed found its place taken, by a later message or, unknown to its chain, by its like."""
        known = "unique_key" in self.case.chain
        identity = copy.order["id"]
        overtaken = self.case.broker.ended.get(copy.tag) == "dead: overtaken"
        alike = identity in self.identities and not known
        return overtaken and self.case.broker.retries[copy.tag] > 0 and (alike or self._overtaken(identity))

    def _order(self) -> None:
        case = self.case
        if case.chain != ("unique_key",):
            self._say("order", [v for v in self.versions.values() if v != sorted(v)])
        elif case.processes == 1:
            for key, versions in self.versions.items():
                mine = [copy.order for copy in case.copies if copy.order["key"] == key]
                if any(order["faults"] for order in mine):
                    continue
                arrived = list(dict.fromkeys(order["version"] for order in mine))
                self._say(f"arrival order of {key}", (versions, arrived) if versions != arrived else None)
