"""The oracle as a process of its own, forked from one that has imported what it needs and has no connection to anything."""

import json
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from storm.attack.child import MESSAGES
from storm.attack.files import ARRIVALS, TRIED, seen
from storm.oracle import collect
from storm.oracle.evidence import Evidence, Fate, Fault, Promise
from storm.oracle.judge import judge
from support.forking import serve, shared_forks

_MODULE = "storm.oracle.process"
MODULES = (
    "confluent_kafka",
    "pika",
    "psycopg",
    "pymysql",
    "sqlalchemy.dialects.mysql.pymysql",
    "sqlalchemy.dialects.postgresql.psycopg",
)
"""What it looks with."""


@dataclass(frozen=True, slots=True)
class Question:
    """What the oracle is asked; travels as JSON.

    Args:
        folder: the stage's.
        broker: its URL, as the app has it.
        database: its URL, as the app has it.
        group: the consumer's.
        topic: the consumer's.
        promise: the fields of a `Promise`; fates as lists.
        faults: the fields of `Fault`s.
    """

    folder: str
    broker: str
    database: str
    group: str
    topic: str
    promise: dict[str, Any] = field(default_factory=dict)
    faults: list[dict[str, Any]] = field(default_factory=list)


def answer(question: Question) -> dict[str, Any]:
    """Gather the evidence, judge it, and count."""
    folder = Path(question.folder)
    effects, notes, left = collect.from_database(question.database)
    place = (question.broker, question.group, question.topic)
    letters, waiting = collect.letters(*place), collect.waiting(*place)
    fates = question.promise.get("fates", {})
    promise = Promise(
        **{
            **question.promise,
            "fates": {kind: frozenset(Fate(fate) for fate in allowed) for kind, allowed in fates.items()},
        }
    )
    evidence = Evidence(
        sent=collect.sent(folder, folder / MESSAGES),
        effects=effects,
        letters=letters,
        notes=notes,
        arrivals=seen(folder / ARRIVALS),
        tried=seen(folder / TRIED),
        remains=[*left, *waiting, *collect.left_in_folder(folder)],
        faults=[Fault(**fault) for fault in question.faults],
    )
    violations = judge(evidence, promise)
    return {
        "violations": [asdict(violation) for violation in violations],
        "counts": {
            "messages": len(evidence.sent),
            "attempted": sum(sent.attempted for sent in evidence.sent.values()),
            "confirmed": sum(sent.confirmed for sent in evidence.sent.values()),
            "unconfirmed": sum(not sent.confirmed for sent in evidence.sent.values()),
            "received": len(evidence.arrivals),
            "moved": len({seen.identity for seen in evidence.arrivals if seen.moved and seen.attempt == 1}),
            "handlers begun": len(evidence.tried),
            "applied": len({effect.identity for effect in effects}),
            "effects": len(effects),
            "dead letters": len(letters),
            "history": dict(Counter(note.outcome for note in notes)),
            "reasons": dict(Counter(letter.reason for letter in letters)),
            "suspects left": collect.suspects(question.database),
            **Counter(violation.kind for violation in violations),
        },
    }


def ask(question: Question) -> dict[str, Any]:
    """Have it answered by a process of its own."""
    with TemporaryDirectory(prefix="oncemq-oracle-") as place:
        file = Path(place, "answer.json")
        child = shared_forks(_MODULE).fork(json.dumps([asdict(question), str(file)]))
        assert child.wait(120) == 0, shared_forks(_MODULE).said()
        return dict(json.loads(file.read_text()))


def _answer(line: str) -> int:
    question, file = json.loads(line)
    Path(file).write_text(json.dumps(answer(Question(**question))))
    return 0


if __name__ == "__main__":
    serve(_answer, MODULES)
