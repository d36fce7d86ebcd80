"""What a person reads when an app is declared wrongly: literal messages, each with its place."""

import sys

import pytest

from oncemq.config import load
from oncemq.errors import ConfigError
from support.declared import BASE, Decide, problems

ORDERS = "{key: body.id, strategies: [decide]}"


def with_consumer(more: str) -> str:
    """Return the app with something added to its consumer, which stands in line 7."""
    return BASE.replace("topic: orders,", f"topic: orders, {more},")


def at_end(more: str) -> str:
    """Return the app with a section added in line 8."""
    return f"{BASE}{more}\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            BASE.replace("consumers:", "consumer:"),
            "app.yaml:6:1: unknown name 'consumer' – did you mean 'consumers'?",
        ),
        (BASE.replace("app: shop\n", ""), "app.yaml:1:1: `app` is missing – write app: loyalty"),
        (
            BASE.replace("app: shop", "app: my shop"),
            "app.yaml:1:6: `app`: 'my shop' cannot be a name – use letters, digits, _ and -, beginning with a letter, 64 at most",
        ),
        (
            BASE.replace("app: shop", "app: 12"),
            "app.yaml:1:6: `app`: should be text, but is a number – put it into quotes",
        ),
        (BASE.replace("topic: orders, ", ""), "app.yaml:7:3: `topic` is missing – write topic: order.paid"),
        (
            BASE.replace("topic: orders", "topic: order"),
            "app.yaml:7:18: unknown topic 'order'; did you mean 'orders'? (known: orders)",
        ),
        (
            at_end("redis: {url: x}"),
            "app.yaml:8:14: `url`: is not a URL – write scheme://host:port/…",
        ),
        (at_end("grace: 30"), "app.yaml:8:8: `grace`: 30 has no unit – write 30s, 30ms, 30m, 30h or 30d"),
        (
            at_end("grace: soon"),
            "app.yaml:8:8: `grace`: 'soon' is not a duration – write a number and a unit, like 500ms, 30s, 10m, 4h or 7d",
        ),
        (
            at_end("http: {address: 9090}"),
            "app.yaml:8:17: `address`: should be text, but is a number – put it into quotes",
        ),
        (
            at_end("http: {address: localhost}"),
            "app.yaml:8:17: `address`: 'localhost' is not an address – write host:port, like 127.0.0.1:9090",
        ),
        (
            at_end("logging: loud"),
            "app.yaml:8:10: `logging`: should be a mapping – write names and values below it, indented; known here: configure, level, format, row_values",
        ),
        (
            at_end("logging: {level: loud}"),
            "app.yaml:8:18: `level`: 'loud' is not possible here – write debug or info or warning or error",
        ),
        (
            at_end("concurrency: 4"),
            "app.yaml:8:1: there is no 'concurrency' here – write it below defaults: or a consumer",
        ),
        (
            with_consumer("max_workers: 4"),
            "app.yaml:7:26: there is no 'max_workers' here – write workers: auto",
        ),
        (
            with_consumer("concurrency: 4"),
            (
                "app.yaml:7:39: `concurrency`: should be a mapping – for the number of workers write workers: auto; to limit messages of one "
                "value write names and values below it, indented; known here: by, limit"
            ),
        ),
        (
            with_consumer("prefetch_count: 4"),
            "app.yaml:7:26: there is no 'prefetch_count' here – write in_flight: 1000",
        ),
        (
            with_consumer("max_retries: 4"),
            "app.yaml:7:26: there is no 'max_retries' here – write retry: {attempts: 6}, where the first try counts too",
        ),
        (
            with_consumer("retry_delay: 4"),
            "app.yaml:7:26: there is no 'retry_delay' here – write retry: {backoff: {first: 1s, factor: 4, max: 10m}}",
        ),
        (
            with_consumer("time_limit: 4"),
            "app.yaml:7:26: there is no 'time_limit' here – write limits: {soft: 20s, hard: 60s}",
        ),
        (
            with_consumer("queue_name: q"),
            "app.yaml:7:26: there is no 'queue_name' here – describe it below topics:, like my-topic: {queue: orders}",
        ),
        (
            with_consumer("dlq: q"),
            "app.yaml:7:26: there is no 'dlq' here – nothing to write: every group has dead letters of its own; see `oncemq dead-letters list`",
        ),
        (
            with_consumer("ack: late"),
            "app.yaml:7:26: there is no 'ack' here – nothing to write: a message is acknowledged once its transaction has committed",
        ),
        (
            with_consumer("retry: {retries: 3}"),
            "app.yaml:7:34: there is no 'retries' here – write attempts: 6; the first try counts too",
        ),
        (
            with_consumer("retry: {attempts: 0}"),
            "app.yaml:7:44: `attempts`: is out of range – write a whole number from 1 to 1000000",
        ),
        (
            with_consumer("keep: 7 days"),
            "app.yaml:7:32: `keep`: '7 days' is not a duration – write a number and a unit, like 500ms, 30s, 10m, 4h or 7d",
        ),
        (
            with_consumer("strategies: decide"),
            "app.yaml:7:38: `strategies`: should be a list – write [decide]",
        ),
        (
            with_consumer("strategies: []"),
            "app.yaml:7:38: `strategies`: is an empty list – write [none] if effects may happen more than once",
        ),
        (
            with_consumer("strategies: [decidee]"),
            "app.yaml:7:39: unknown strategy 'decidee'; did you mean 'decide'? (known: decide, direct, guard, held, none, optimistic_lock, order, pessimistic_lock, precondition, redis_flag, redis_lock, sequence, state_machine, tiered, two_phase, unique_key)",
        ),
        (
            with_consumer("effects: database, handlr: x"),
            "app.yaml:7:45: unknown name 'handlr' – did you mean 'handler'?",
        ),
        (
            BASE.replace(ORDERS, "{key: body.id, strategies: [decide], brokr: x}"),
            "app.yaml:5:48: unknown name 'brokr' – did you mean 'broker'?",
        ),
        (
            BASE.replace(ORDERS, "{key: body.id, strategies: [decide], workers: 3}"),
            "app.yaml:5:48: 'workers' belongs to a consumer – write it at the consumer, or below defaults:",
        ),
        (
            BASE.replace(ORDERS, "{strategies: [decide]}"),
            "app.yaml:5:3: topic 'orders' declares no key, and a key is never invented – write key: and the field that names the business entity, like key: body.order_id",
        ),
        (
            BASE.replace(ORDERS, "{key: body.id, strategies: [decide], broker: mian}"),
            "app.yaml:5:56: unknown broker 'mian'; did you mean 'main'? (known: main)",
        ),
        (
            BASE.replace(ORDERS, "{key: body.id, strategies: [decide], format: jsn}"),
            "app.yaml:5:56: unknown format 'jsn'; did you mean 'json'? (known: bytes, confluent-json, json, text)",
        ),
        (
            BASE.replace("scripted://host", "localhost:5672"),
            "app.yaml:2:23: `url`: is not a URL – write scheme://host:port/…",
        ),
        (
            BASE.replace("scripted://host", "scrpted://host"),
            "app.yaml:2:23: unknown broker scheme 'scrpted'; did you mean 'scripted'? (known: amqp, amqps, embedded, kafka, rocketmq, rocketmq+grpc, rocketmq+native, scripted)",
        ),
        (
            BASE.replace('"sqlite://"', '"mongo://host"'),
            "app.yaml:3:17: 'mongo' is not a supported database – use postgresql://, mysql://, mariadb:// or sqlite:///",
        ),
        (
            BASE.replace('"sqlite://"', '"sqlite://", host: x'),
            "app.yaml:3:30: there is no 'host' here – write it in the url: scheme://host:port/path",
        ),
        (
            BASE.replace("MODULE:handle", "MODULE.handle"),
            "app.yaml:7:35: `handler`: 'MODULE.handle' does not name a Python object – write module:name, like handlers:award_points",
        ),
    ],
)
def test_each_mistake_is_one_line_with_its_place(tmp_path, text, said):
    """A mistake is told at its line and column, with what to write."""
    assert problems(tmp_path, text) == [said]


def test_every_mistake_is_told_at_once(tmp_path):
    """A person mends a file in one go."""
    text = BASE.replace("consumers:", "consumer:").replace("key: body.id", "key: 1") + "grace: 1\n"
    assert [line.partition(": ")[0] for line in problems(tmp_path, text)] == [
        "app.yaml:5:17",
        "app.yaml:6:1",
        "app.yaml:8:8",
    ]


def test_a_missing_file_says_how_to_get_one(tmp_path):
    """Nothing is more usual than calling the program in the wrong folder."""
    with pytest.raises(ConfigError) as caught:
        load([tmp_path / "none.yaml"])
    assert (
        str(caught.value)
        == f"{tmp_path}/none.yaml: there is no such file – name yours with -f, or let `oncemq init` write one"
    )


class Missing:
    """An import finder that knows one package to be missing."""

    def __init__(self, package: str) -> None:
        self.package = package

    def find_spec(self, name: str, *_more: object) -> None:
        """Raise what Python raises for a package that is not there."""
        if name == self.package:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def without(monkeypatch, package: str, importer: str) -> None:
    """Make `package` missing for what is imported from now on."""
    for name in [name for name in sys.modules if name.split(".")[0] == package or name.startswith(importer)]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "meta_path", [Missing(package), *sys.meta_path])


def test_a_missing_broker_package_says_the_install_line(tmp_path, monkeypatch):
    """Extras are named as pip wants them."""
    without(monkeypatch, "pika", "oncemq_adapters.rabbitmq")
    assert problems(tmp_path, BASE.replace("scripted://host", "amqp://host")) == [
        (
            "app.yaml:2:23: broker scheme 'amqp' needs the package 'pika', which is not installed: "
            "pip install 'oncemq[rabbitmq]'"
        )
    ]


def test_a_missing_database_driver_says_the_install_line(tmp_path, monkeypatch):
    """Extras are named as pip wants them, and the URL is shown without its password."""
    without(monkeypatch, "pymysql", "pymysql")
    assert problems(tmp_path, BASE.replace("sqlite://", "mysql://u:c4n4ry@host/db")) == [
        (
            "app.yaml:3:17: the database mysql+pymysql://u:***@host/db needs the package 'pymysql', "
            "which is not installed: pip install 'oncemq[mysql]'"
        )
    ]


@pytest.mark.parametrize("name", ["retry", "limits", "strategies", "topic"])
def test_a_consumer_may_be_called_like_a_field(tmp_path, name):
    """What is wrong below a name of one's own choice is told by that place's own fields."""
    text = BASE.replace("count: {topic: orders,", f"{name}: {{subject: orders,")
    missing, unknown = sorted(problems(tmp_path, text), key=lambda line: "unknown" in line)
    assert "`topic` is missing" in missing
    assert "there is no 'subject' here" in unknown


@pytest.mark.parametrize(
    "field", ["workers: body.id", "in_flight: x", "keep: 1d", "unit_time: 5", "retry: {attempts: x}"]
)
def test_a_consumers_field_at_a_topic_is_only_refused(tmp_path, field):
    """A value that no one has checked is not used to check others."""
    said = problems(tmp_path, BASE.replace("key: body.id,", f"key: body.id, {field},"))
    assert len(said) == 1
    assert "belongs to a consumer" in said[0]


@pytest.mark.parametrize("error", [ValueError("size must be positive"), TypeError("size must be positive")])
def test_a_strategy_that_cannot_be_made_is_one_line_with_its_place(tmp_path, monkeypatch, error):
    """A third party's constructor raises whatever it likes; a person reads where it was asked for, and why."""

    def build(*_):
        raise error

    monkeypatch.setattr(Decide, "build", build)
    (said,) = problems(tmp_path, BASE)
    assert said.startswith("app.yaml:5:")
    assert "size must be positive" in said
