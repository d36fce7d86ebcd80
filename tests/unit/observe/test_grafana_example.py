"""The dashboard and the alert rules of the example: what they ask for exists, and each alert speaks when it must."""

import json
import re
import shutil
import socket
import subprocess
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from oncemq.message.envelope import Delivery, Message
from oncemq.observe.events import RescueStep, TimeLimit
from oncemq.observe.metrics import MetricsObserver
from oncemq.observe.state import AppState, BreakerState, ConsumerState, PauseReason, Phase
from services.install import install_packages
from support.apps.program import Started, eventually
from support.apps.warm import WarmProgram

ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "examples" / "grafana"
OPERATIONS = (ROOT / "docs" / "operations.md").read_text()
METRICS = (ROOT / "docs" / "metrics.md").read_text()
OF_PROMETHEUS = {"job", "instance", "le"}
"""Labels that it adds itself, and that of histograms."""
STRINGS = re.compile(r'"[^"]*"')

APP = """
app: shop
http: {address: "127.0.0.1:%d"}
brokers:
  local: {url: "embedded:///broker.db"}
database: {url: "sqlite:///shop.db"}
topics:
  paid: {key: body.id, strategies: [unique_key]}
  steps: {key: body.id, version: body.step, strategies: [sequence]}
  mails: {key: body.id, strategies: [two_phase: {verify: "handlers:was_sent"}]}
consumers:
  award: {topic: paid, handler: "handlers:award", retry: {attempts: 2, backoff: {first: 100ms}}}
  follow: {topic: steps, handler: "handlers:follow", on_dead: hold_key}
  mail: {topic: mails, handler: "handlers:mail", effects: external, retry: {attempts: 2, backoff: {first: 100ms}}}
"""
HANDLERS = """
import os, signal
from pathlib import Path
from sqlalchemy.orm import Session
from oncemq import Unknown

def award(order: dict, session: Session) -> None:
    died = Path("died")
    if order.get("kills") and not died.exists():
        died.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    if order.get("fails"):
        raise ValueError("no such customer")

def follow(step: dict, session: Session) -> None: ...

def mail(order: dict) -> None:
    raise TimeoutError("the mail server does not answer")

def was_sent(order: dict) -> Unknown:
    return Unknown("it does not answer this, either")
"""


@dataclass
class Exported:
    """Metrics with their labels, and the labels' values."""

    labels: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    values: dict[tuple[str, str], set[str]] = field(default_factory=lambda: defaultdict(set))
    samples: dict[tuple[str, str], float] = field(default_factory=dict)
    """By name and the label `consumer`; of several the largest."""

    def of(self, name: str, consumer: str = "") -> float:
        """Return a sample; 0 without one."""
        return self.samples.get((name, consumer), 0.0)

    def add(self, text: str, **more: str) -> None:
        """Add what an exposition has."""
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                labels = {**sample.labels, **more}
                self.labels[sample.name] |= set(labels)
                for label, value in labels.items():
                    self.values[sample.name, label].add(value)
                place = sample.name, labels.get("consumer", "")
                self.samples[place] = max(sample.value, self.samples.get(place, sample.value))


def _read(port: int) -> Exported:
    found = Exported()
    with suppress(URLError):  # it starts
        found.add(urlopen(f"http://127.0.0.1:{port}/metrics").read().decode())
    return found


def _complete(found: Exported) -> bool:
    """Return whether every message has come to what it must come to."""
    return (
        "duplicate" in found.values["oncemq_messages_total", "outcome"]
        and found.of("oncemq_dead_letters_total", "award") > 0
        and found.of("oncemq_dead_letter_messages", "award") > 0
        and found.of("oncemq_parked_messages", "follow") == 1
        and found.of("oncemq_parked_oldest_seconds", "follow") > 0
        and found.of("oncemq_unknown_claims", "mail") == 1
        and found.of("oncemq_worker_restarts_total") == 1
        and found.of("oncemq_ledger_bytes") > 0
    )


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Exported]:
    """What an app exports that applied, refused, parked, doubted and survived a death."""
    folder = tmp_path_factory.mktemp("shop")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    (folder / "app.yaml").write_text(APP % port)
    (folder / "handlers.py").write_text(HANDLERS)
    shop = WarmProgram(folder)
    shop.succeed("tables", "create")
    _publish(shop, "paid", {"id": 1, "kills": True})
    with shop.started("run", "--processes", "1") as running:
        # Its counters die with the process.
        _wait(port, running, "the death of a process", lambda found: found.of("oncemq_worker_restarts_total"))
        _publish(shop, "paid", {"id": 1}, {"id": 2}, {"id": 2}, {"id": 3, "fails": True})
        _publish(shop, "steps", {"id": 1, "step": 2})
        _publish(shop, "mails", {"id": 1})
        yield _wait(port, running, "every outcome", _complete)


def _publish(shop: WarmProgram, topic: str, *bodies: Mapping[str, Any]) -> None:
    lines = "".join(json.dumps(body) + "\n" for body in bodies)
    assert shop.call("publish", topic, stdin=lines).returncode == 0


def _wait(port: int, running: Started, wanted: str, reached: Callable[[Exported], object]) -> Exported:
    found = [Exported()]

    def read() -> object:
        found[0] = _read(port)
        return reached(found[0])

    eventually(read, wanted, 80, lambda: f"{running.said()}\n{found[0].samples}")
    return found[0]


@pytest.fixture(scope="module")
def exported(live: Exported) -> Exported:
    """The same, with what only failing servers bring forth."""
    metrics, delivery = MetricsObserver(), Delivery(Message("paid", b"{}"))
    metrics.unit_done("award", {}, size=1, seconds=0.1, rescue={RescueStep.RERUN: 1})
    metrics.consumer_paused("award", PauseReason.DATABASE)
    metrics.infrastructure_failed("award", tries=1, next_in=timedelta(1), error=OSError())
    metrics.settle_failed("award", 1, OSError())
    metrics.crash_suspect("award", key="k", identity="i", crashes=1)
    metrics.time_limit("award", delivery, TimeLimit.SOFT, timedelta(1))
    found = {"action": "warn", "share": 0.5, "above": 0.2, "messages": 100}
    metrics.breaker_changed("award", "failures", "open", **found)
    metrics.connection_lost("local", "award")
    metrics.answered("award", "dropped", 1)
    metrics.outbox_refused("paid", 1, tries=1, next_in=timedelta(1), error=OSError())
    metrics.unroutable("paid", ["m-1"], dropped=False, error=OSError())
    row = ConsumerState(
        "award",
        subscribed=True,
        figures={"redis_hit_rate": 0.5},
        breakers=(BreakerState("failures", "open", 0.5),),
    )
    metrics.watch(lambda: AppState(Phase.RUNNING, (row,)))
    live.add(metrics.exposition().decode(), process="0")
    return live


@dataclass(frozen=True)
class Asked:
    """An expression, with the texts that name its labels."""

    where: str
    expression: str
    texts: str = ""


def rules() -> Sequence[Mapping[str, Any]]:
    """Return the alert rules."""
    (group,) = yaml.safe_load((EXAMPLE / "alerts.yaml").read_text())["groups"]
    found: Sequence[Mapping[str, Any]] = group["rules"]
    return found


def panels() -> Sequence[Mapping[str, Any]]:
    """Return the panels of the dashboard that show something."""
    board = json.loads((EXAMPLE / "dashboard.json").read_text())
    return [panel for panel in board["panels"] if panel["type"] != "row"]


def of_dashboard() -> list[Asked]:
    """Return every expression of the dashboard."""
    return [
        Asked(f"panel {panel['title']}", target["expr"], target["legendFormat"])
        for panel in panels()
        for target in panel["targets"]
    ]


def asked() -> list[Asked]:
    """Return every expression of rules and dashboard."""
    alerts = [Asked(rule["alert"], rule["expr"], json.dumps(rule["annotations"])) for rule in rules()]
    return [*alerts, *of_dashboard()]


def problems(ask: Asked, exported: Exported) -> Iterator[str]:
    """Yield each metric, label and value that does not exist."""
    bare = STRINGS.sub('""', ask.expression)
    names = set(re.findall(r"\boncemq_\w+", bare))
    known = OF_PROMETHEUS.union(*(exported.labels.get(name, set()) for name in names))
    yield from (f"no metric {name}" for name in names if name not in exported.labels)
    for name, matchers in re.findall(r"\b(oncemq_\w+)\{([^}]*)\}", ask.expression):
        for label, operator, value in re.findall(r'(\w+)\s*(=~|!=|=)\s*"([^"]*)"', matchers):
            if label not in exported.labels[name] | OF_PROMETHEUS:
                yield f"{name} has no label {label}"
            elif operator == "=" and value not in exported.values[name, label]:
                yield f"{name} has no {label} {value}"
    grouped = {
        label for labels in re.findall(r"\b(?:by|without) \(([^)]*)\)", bare) for label in labels.split(", ")
    }
    texts = set(re.findall(r"\{\{ ?(?:\$labels\.)?(\w+)", ask.texts))
    yield from (f"no label {label}" for label in (grouped | texts) - known)


@pytest.mark.timeout(200)
def test_what_dashboard_and_rules_ask_for_is_exported(exported: Exported) -> None:
    """Every metric, label and value exists in what an app exports."""
    assert len(asked()) > 40
    assert [f"{ask.where}: {problem}" for ask in asked() for problem in problems(ask, exported)] == []


@pytest.mark.timeout(200)
def test_every_metric_is_in_the_documentation(exported: Exported) -> None:
    """The page lists it with its labels; and the dashboard shows it."""
    names = {
        re.sub("_(bucket|sum|count)$", "", name) for name in exported.labels if not name.endswith("_created")
    }
    documented = dict(re.findall(r"^\| `(oncemq_\w+)` \| ([^|]*) \|", METRICS, re.MULTILINE))
    assert set(documented) == names
    labels = {
        name: exported.labels.get(name, set()) | exported.labels.get(f"{name}_bucket", set()) - {"le"}
        for name in names
    }
    assert {name: set(re.findall(r"`(\w+)`", text)) for name, text in documented.items()} == {
        name: found - {"process"} for name, found in labels.items()
    }
    shown = " ".join(ask.expression for ask in of_dashboard())
    assert [name for name in sorted(names) if name not in shown] == []


def test_a_wrong_metric_label_or_value_is_found() -> None:
    """This file's own check sees each kind of mistake."""
    exported = Exported()
    exported.add('# TYPE oncemq_pauses counter\noncemq_pauses_total{consumer="a",reason="redis"} 1\n')
    wrong = Asked(
        "x",
        'sum by (why) (oncemq_pauses_total{reason="moon",host="a"}) + oncemq_moons',
        "{{ $labels.moon }}",
    )
    assert sorted(problems(wrong, exported)) == [
        "no label moon",
        "no label why",
        "no metric oncemq_moons",
        "oncemq_pauses_total has no label host",
        "oncemq_pauses_total has no reason moon",
    ]


def test_operators_can_read_what_to_do_for_each_alert() -> None:
    """Each alert has a section of its own."""
    sections = re.findall(r"^### (OnceMQ\w+)$", OPERATIONS, re.MULTILINE)
    assert sections == [rule["alert"] for rule in rules()]


def test_panels_have_a_place_of_their_own() -> None:
    """None lies on another one, and each says what it shows."""
    taken: set[tuple[int, int]] = set()
    for panel in panels():
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not taken & cells, panel["title"]
        assert at["x"] + at["w"] <= 24
        assert panel["description"]
        taken |= cells


def _promtool() -> str:
    found = shutil.which("promtool")
    if found is None and install_packages("prometheus"):
        found = shutil.which("promtool")
    if found is None:
        raise AssertionError("promtool is not installed, and cannot be: apt-get install prometheus")
    return found


def _check(*arguments: str) -> None:
    done = subprocess.run([_promtool(), *arguments], cwd=EXAMPLE, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.server
@pytest.mark.timeout(300)
def test_prometheus_takes_rules_and_dashboard(tmp_path: Path) -> None:
    """Its own tool reads the configuration, the rules and each expression of the dashboard."""
    _check("check", "config", "prometheus.yml")
    expressions = [
        re.sub(r"\$__\w+", "5m", ask.expression).replace("$job", ".*").replace("$consumer", ".*")
        for ask in of_dashboard()
    ]
    recorded = [{"record": f"panel_{number}", "expr": text} for number, text in enumerate(expressions)]
    (tmp_path / "panels.yaml").write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": recorded}]}))
    _check("check", "rules", str(tmp_path / "panels.yaml"))


@pytest.mark.server
@pytest.mark.timeout(300)
def test_each_alert_speaks_when_it_must_and_only_then() -> None:
    """The example's rule tests pass, and have a case of each alert that fires and one that does not."""
    cases = [
        case
        for test in yaml.safe_load((EXAMPLE / "alerts_test.yaml").read_text())["tests"]
        for case in test["alert_rule_test"]
    ]
    names = {rule["alert"] for rule in rules()}
    assert {case["alertname"] for case in cases if case["exp_alerts"]} == names
    assert {case["alertname"] for case in cases if not case["exp_alerts"]} >= names - {"OnceMQNoProgress"}
    _check("test", "rules", "alerts_test.yaml")
