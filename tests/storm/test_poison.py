"""Messages that fail in every way there is: each ends as one dead letter after its attempts, and harms no one else."""

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from time import monotonic

import pytest

from storm.attack.assassin import Assassin
from storm.attack.files import TRIED, seen
from storm.attack.nursery import Nursery
from storm.attack.stage import Settings, Stage, bodies, report, wait_for
from storm.oracle.evidence import Letter, Seen
from support.brokers.places import EMBEDDED, POSTGRESQL, Place, make_place

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

KAFKA = "kafka+postgresql"
ATTEMPTS = 3
FAILING, DEADLY = ("raises", "writes", "swallows", "eats"), ("kills", "hangs")
LONG = "ONCEMQ_STORM_MESSAGES" in os.environ
DEPENDENTS, HEALTHY = (400, 200) if LONG else (100, 60)
OUTAGE = 6.0


@pytest.fixture(
    params=[
        EMBEDDED,
        pytest.param(POSTGRESQL, marks=pytest.mark.server),
        pytest.param(KAFKA, marks=[pytest.mark.server, pytest.mark.long_form("ONCEMQ_STORM_MESSAGES")]),
    ]
)
def place(request: pytest.FixtureRequest, tmp_path: Path, fresh: str) -> Iterator[Place]:
    """The short and the usual pair of broker and database, and a broker of partitions."""
    if request.param == KAFKA:
        # A member that has died gives up its partitions within two seconds.
        url = f"{request.getfixturevalue('kafka_url')}?session_timeout=2s&handover=2s"
        yield Place(url, request.getfixturevalue("postgresql_database"), fresh, tmp_path)
        return
    yield from make_place(request.param, request, tmp_path, fresh)


def poisoned(place: Place, kinds: tuple[str, ...], hard: str) -> tuple[list[Letter], list[Seen]]:
    """Run one poison of each kind among healthy messages of the same keys, in two processes that are replaced when they die.

    A hard limit counts the time of the machine: it is short only where a handler never returns.
    Each death may come between a confirmed dead letter of another poison and its acknowledgement, and so copy that letter.
    """
    poison = [
        {"id": f"bad-{kind}", "key": f"key-{number}", "kind": kind} for number, kind in enumerate(kinds)
    ]
    healthy = bodies(HEALTHY, prefix="good", keys=len(kinds), twice=0.0)
    with Nursery(place.folder) as nursery:
        stage = Stage(place, nursery, Settings(attempts=ATTEMPTS, more=f"limits: {{hard: {hard}}}"))
        half = HEALTHY // 2
        stage.publish(healthy[:half] + poison + healthy[half:])
        with Assassin(stage, 2, 0.05, harms=()).at_work() as keeper:
            wait_for(lambda: stage.applied() >= HEALTHY, "the healthy ones' effects", pause=0.3)
            wait_for(
                lambda: len({letter.identity for letter in stage.dead()}) >= len(kinds),
                "dead letters",
                pause=0.3,
            )
        assert set(keeper.drain()) == {0}, nursery.said()
        stage.drain()
        died = sum(times for code, times in keeper.deaths.items() if code != 0)
        verdict, dead = stage.verdict(reruns=200, ordered=False, copies=died), stage.dead()
    tried = seen(place.folder / TRIED)
    begun = Counter(trial.identity for trial in tried)
    scheme = place.broker.partition(":")[0]
    report(
        f"poison {scheme}",
        verdict,
        begun={kind: begun[f"bad-{kind}"] for kind in kinds},
        exits=dict(keeper.deaths),
    )
    assert verdict.violations == [], f"{nursery.said()}\n{verdict}"
    assert {letter.identity for letter in dead} == {f"bad-{kind}" for kind in kinds}
    assert len(dead) == len(kinds) or died
    assert {letter.attempt for letter in dead} == {ATTEMPTS}
    assert {trial.attempt for trial in tried if trial.identity.startswith("good")} == {1}
    return dead, tried


def test_poison_that_fails_ends_as_one_dead_letter_and_harms_no_other(place: Place) -> None:
    """Attempts are exact; neighbours of the same keys are applied in their first attempt.

    Where memory ends, the handler fails, or its process dies, or it is still eating at the hard limit; each is one attempt.
    """
    dead, tried = poisoned(place, FAILING, "5s")
    reasons = {letter.identity: letter.reason for letter in dead}
    assert reasons.pop("bad-eats") in {"attempts-exhausted", "crashed", "hard-limit"}
    assert set(reasons.values()) == {"attempts-exhausted"}
    for kind in set(FAILING) - {"eats"}:
        assert {trial.attempt for trial in tried if trial.identity == f"bad-{kind}"} == {1, 2, 3}


def test_poison_that_takes_its_process_along_is_tried_as_often_as_configured(place: Place) -> None:
    """Killed or never returning: three processes each, then a dead letter; neighbours in their first attempt.

    One that never returns can share a death of the other, which is none of its hard limit's.
    """
    dead, tried = poisoned(place, DEADLY, "1s")
    reasons = {letter.identity: letter.reason for letter in dead}
    assert reasons["bad-kills"] == "crashed"
    assert reasons["bad-hangs"] in {"hard-limit", "crashed"}
    for kind in DEADLY:
        assert [trial.identity for trial in tried].count(f"bad-{kind}") == ATTEMPTS


def test_a_dependency_that_is_down_does_not_multiply_the_load(place: Place) -> None:
    """Tries stay within the attempts, copies within the tries; what needs no dependency goes on meanwhile."""
    settings = Settings(attempts=6, first="200ms", factor=3, most="5s")
    waiting = [{"id": f"wait{n}", "key": f"wait-{n % 20}", "kind": "depends"} for n in range(DEPENDENTS)]
    down = place.folder / "down"
    with Nursery(place.folder) as nursery:
        stage = Stage(place, nursery, settings)
        down.touch()
        started = monotonic()
        stage.publish(waiting)
        consumer = stage.consumer()
        wait_for(lambda: stage.tries() >= DEPENDENTS, "every dependent to have failed once")
        stage.publish(bodies(HEALTHY, prefix="well", twice=0.0))
        meanwhile = wait_for(lambda: stage.applied() >= HEALTHY, "what needs no dependency", OUTAGE)
        wait_for(lambda: monotonic() - started >= OUTAGE, "the end of the outage", OUTAGE)
        tries = stage.tries()
        down.unlink()
        back = wait_for(lambda: stage.applied() >= HEALTHY + DEPENDENTS, "everything to be applied")
        assert consumer.drain() == 0, nursery.said()
        verdict = stage.verdict(reruns=0, ordered=False)
    received = verdict.counts["received"] - HEALTHY
    report(
        f"retry storm {place.broker.partition(':')[0]}",
        verdict,
        tries_while_down=tries - HEALTHY,
        received=received,
        healthy_seconds=round(meanwhile, 1),
        back_seconds=round(back, 1),
    )
    assert verdict.violations == [], f"{nursery.said()}\n{verdict}"
    # Pauses of 0.2, 0.6, 1.8 and 5 s: at most four tries fit into the outage, and one follows it.
    assert received <= 5 * DEPENDENTS
    assert verdict.counts["handlers begun"] - HEALTHY <= 5 * DEPENDENTS
