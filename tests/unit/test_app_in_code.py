"""An app in Python does what the program does with an app in YAML."""

from pathlib import Path
from threading import Event

import pytest
from opentelemetry import metrics
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from sqlalchemy import create_engine, inspect
from sqlalchemy.orm import Session

from oncemq import App
from oncemq.cli.exit_codes import CONFIG
from oncemq.errors import ConfigError, LedgerError, Reject
from support.apps.program import Program
from support.effects import Base, effects, give

SHOP = """
from pathlib import Path
from sqlalchemy.orm import Session
from oncemq import App
from oncemq.cli.exit_codes import CONFIG

here = Path(__file__).parent
app = App("shop", brokers={"main": f"embedded:///{here}/broker.db"}, database=f"sqlite:///{here}/shop.db")
app.topic("orders", key="body.id", strategies=["unique_key"])

@app.consumer(topic="orders")
def count(order: dict, session: Session) -> None:
    with (here / "seen").open("a") as seen:
        seen.write(order["id"] + "\\n")
"""

YAML = """
app: shop
brokers: {main: {url: "embedded:///broker.db"}}
database: {url: "sqlite:///shop.db"}
topics: {orders: {key: body.id, strategies: [unique_key]}}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory of a user, with an app.yaml."""
    (tmp_path / "app.yaml").write_text(YAML)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_check_says_that_run_is_one_process(folder: Path) -> None:
    """`processes:` is for the command, and App.run() would ignore it in silence."""
    (folder / "app.yaml").write_text(YAML + "processes: 3\n")
    (said,) = App.from_yaml().check()
    assert said == "processes: 3 – App.run() is one process; `oncemq -f module:app run` starts 3"


def test_an_app_starts_and_stops_beside_other_work(folder: Path) -> None:
    """start() returns when consumers are subscribed, publish() reaches them, stop() drains and returns 0."""
    app, handled = App.from_yaml(), Event()

    @app.consumer(topic="orders")
    def count(order: dict, session: Session) -> None:
        give(session, order)
        handled.set()

    created = app.create_tables()
    assert "oncemq_processed" in created
    engine = create_engine(f"sqlite:///{folder}/shop.db")
    Base.metadata.create_all(engine)
    app.start()
    with pytest.raises(RuntimeError, match="runs already"):
        app.start()
    app.publish("orders", {"id": "a", "key": "a"})
    assert handled.wait(20)
    assert app.stop() == 0
    assert app.stop() == 0
    assert effects(engine) == ["a"]
    assert app.create_tables() == []
    engine.dispose()


def test_the_meter_provider_of_a_service_gets_the_metrics(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An app that runs beside other work counts there, without a variable; it sets no provider itself."""
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader])
    monkeypatch.setattr(metrics, "get_meter_provider", lambda: provider)
    app, handled = App.from_yaml(), Event()

    @app.consumer(topic="orders")
    def count(order: dict, session: Session) -> None:
        handled.set()

    app.create_tables()
    app.start()
    app.publish("orders", {"id": "a", "key": "a"})
    assert handled.wait(20)
    assert app.stop() == 0
    (resource,) = reader.get_metrics_data().resource_metrics
    found = {metric.name: metric.data.data_points for metric in resource.scope_metrics[0].metrics}
    (point,) = found["oncemq_messages_total"]
    assert (point.attributes, point.value) == ({"consumer": "count", "outcome": "applied"}, 1)


def refuse(order: dict) -> None:
    """Refuse every message."""
    raise Reject("not today")


def test_what_is_known_about_a_key_and_its_dead_letters(folder: Path) -> None:
    """inspect() and dead_letters tell and do what the program does with an app in YAML."""
    app = App.from_yaml()
    app.consumer(topic="orders", name="refuse")(refuse)
    app.create_tables()
    for name in ("a", "b"):
        app.publish("orders", {"id": name}, headers={"tenant": "x"})
    assert app.run(until_idle="300ms") == 0
    letters = {letter.key: letter for letter in app.dead_letters.list("refuse")}
    assert (letters["a"].reason, letters["a"].body, letters["a"].headers["tenant"]) == (
        "rejected",
        b'{"id":"a"}',
        "x",
    )
    assert [letter.key for letter in app.dead_letters.list(key="b")] == ["b"]
    known = app.inspect("a")
    assert [row["reason"] for row in known["dead_letters"]] == ["rejected"]
    assert known["problems"] == []
    assert app.dead_letters.replay(key="a") == 1
    assert app.dead_letters.purge("refuse", everything=True) == 1
    assert app.dead_letters.list() == []
    with pytest.raises(ValueError, match="say which"):
        app.dead_letters.purge()
    with pytest.raises(ConfigError, match="did you mean 'refuse'"):
        app.dead_letters.list("refuze")
    app.stop()


def test_a_script_finds_the_database_of_the_app(folder: Path) -> None:
    """engine() is on the database that the file names; an app without one says so."""
    engine = App.from_yaml().engine()
    assert engine.url.database == "shop.db"
    engine.dispose()
    with pytest.raises(ConfigError, match="0 databases"):
        App("shop", brokers={"main": "embedded://"}).engine()


def test_an_adapter_of_your_own_has_its_options(folder: Path) -> None:
    """`options=` takes what no shipped adapter knows; a shipped one refuses it by name."""
    app = App("shop", brokers={"main": "amqp://localhost"}, database="sqlite:///shop.db")
    app.topic("orders", key="body.id", options={"subject": "x"}, strategies=["unique_key"])
    app.consumer(topic="orders")(print_order)
    with pytest.raises(ConfigError, match="subject"):
        app.check()


def test_a_start_that_fails_raises(folder: Path) -> None:
    """Missing tables are raised by start(), and nothing stays open."""
    app = App.from_yaml(folder / "app.yaml")
    app.consumer(topic="orders", name="count")(print_order)
    with pytest.raises(LedgerError):
        app.start()
    app.create_tables()
    app.start()
    assert app.stop() == 0


def print_order(order: dict) -> None:
    """Do nothing."""


def test_a_name_that_the_file_has_is_refused(folder: Path) -> None:
    """What Python declares does not replace in silence what the file says; both places are named."""
    app = App.from_yaml()
    app.topic("orders", key="body.id")
    with pytest.raises(
        ConfigError, match=r"test_app_in_code\.py:\d+: topic 'orders' is declared a second time.*app\.yaml:5"
    ):
        app.check()


def test_an_app_without_a_database_has_no_tables() -> None:
    """create_tables() says what is missing."""
    with pytest.raises(ConfigError, match="no database"):
        App("shop", brokers={"main": "embedded://"}).create_tables()


def test_the_program_takes_an_app_in_python(folder: Path) -> None:
    """`oncemq -f module:app` runs each command on it, worker processes included."""
    (folder / "shop.py").write_text(SHOP)
    program = Program(folder)
    program.succeed("-f", "shop:app", "tables", "create")
    assert "oncemq_processed" in inspect(create_engine(f"sqlite:///{folder}/shop.db")).get_table_names()
    program.succeed("-f", "shop:app", "check")
    (folder / "orders.jsonl").write_text('{"id": "a"}\n{"id": "b"}\n')
    program.succeed("-f", "shop:app", "publish", "orders", "orders.jsonl")
    program.succeed("-f", "shop:app", "run", "--until-idle", "300ms")
    assert sorted((folder / "seen").read_text().split()) == ["a", "b"]
    assert "processed" in program.succeed("-f", "shop:app", "inspect", "a")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("shpo:app", "did you mean 'shop'"),
        ("shop:ap", "did you mean 'app'"),
        ("shop:here", "not an oncemq.App"),
    ],
)
def test_a_wrong_name_is_told(folder: Path, name: str, said: str) -> None:
    """A module or object that is not there is named, with what may be meant."""
    (folder / "shop.py").write_text(SHOP)
    done = Program(folder).call("-f", name, "check")
    assert done.returncode == CONFIG
    assert said in done.stderr
    assert "Traceback" not in done.stderr
