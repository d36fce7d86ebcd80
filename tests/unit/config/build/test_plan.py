"""From the model to the plan: what is inherited, what is imported, and what the framework's own rules refuse."""

import sys
from dataclasses import replace
from datetime import timedelta

import pytest

from oncemq.contracts.checks import Effects
from oncemq.errors import InvalidPayload, MissingExtra
from oncemq.message.envelope import Message
from oncemq.message.outgoing import WhenUnroutable
from oncemq.testing.scripted import ScriptedAdapter
from support.declared import BASE, loaded, problems

ORDERS = "{key: body.id, strategies: [decide]}"
WITHOUT_DATABASE = BASE.replace('database: {url: "sqlite://"}\n', "")


def consumer(folder, more: str = "", **how):
    """Return the plan of the one consumer, declared with `more`."""
    text = BASE.replace("topic: orders,", f"topic: orders, {more}," if more else "topic: orders,")
    return loaded(folder, text, **how).plan.consumers[0]


def test_unroutable_messages_are_kept_in_a_database(tmp_path):
    """An app without one is told so; with one the topic has its policy."""
    kept = "{key: body.id, strategies: [decide], unroutable: dead_letter}"
    plan = loaded(tmp_path, BASE.replace(ORDERS, kept)).plan
    assert plan.topics["orders"].unroutable is WhenUnroutable.DEAD_LETTER
    found = problems(tmp_path, WITHOUT_DATABASE.replace(ORDERS, kept))
    assert any("without a database no message can be kept" in str(problem) for problem in found)


def test_without_a_database_no_outbox_keeps_delayed_messages(tmp_path):
    """`delay_by: outbox` needs one."""
    wished = "{key: body.id, strategies: [decide], delay_by: outbox}"
    found = problems(tmp_path, WITHOUT_DATABASE.replace(ORDERS, wished))
    assert any(
        "without a database there is no outbox that keeps messages" in str(problem) for problem in found
    )


def test_a_broker_without_an_exact_timer_keeps_no_delayed_messages(tmp_path, monkeypatch):
    """`delay_by: broker` is refused where delays would be rounded."""
    rounding = replace(ScriptedAdapter.capabilities, precise_delay=False)
    monkeypatch.setattr(ScriptedAdapter, "capabilities", rounding)
    wished = "{key: body.id, strategies: [decide], delay_by: broker}"
    found = problems(tmp_path, BASE.replace(ORDERS, wished))
    assert any("this broker has no exact timer" in str(problem) for problem in found)


def test_defaults_of_a_bare_consumer(tmp_path):
    """Group, effects, workers, attempts and limits have values that suit a database handler."""
    plan = consumer(tmp_path)
    assert (plan.scope, plan.subscription.group, plan.effects) == (
        "shop.count",
        "shop-count",
        Effects.DATABASE,
    )
    assert (plan.workers, plan.batch_limit, plan.retry.attempts, plan.soft_limit) == (1, 500, 6, None)
    assert plan.subscription.in_flight == 1000


def test_external_effects_have_many_workers(tmp_path):
    """A handler that waits for others is worth more threads."""
    assert consumer(tmp_path, "effects: external, strategies: [direct]").workers == 32


@pytest.mark.parametrize(
    ("more", "size"),
    [
        ("workers: 4", 10),
        ("workers: 20", 25),
        ("effects: external, strategies: [direct]", 13),
    ],
    ids=["few", "a transaction each", "brief transactions"],
)
def test_the_pool_has_what_the_workers_need(tmp_path, more: str, size: int):
    """Workers do not wait for each other's connections; those without transactions need few."""
    text = BASE.replace("topic: orders,", f"topic: orders, {more},").replace("sqlite://", "sqlite:///shop.db")
    pool = loaded(tmp_path, text).plan.engine.pool
    assert pool.size() == size


def test_the_size_of_the_pool_can_be_said(tmp_path):
    """Then it holds, whatever the workers need."""
    text = BASE.replace('{url: "sqlite://"}', '{url: "sqlite:///shop.db", pool_size: 3}')
    assert loaded(tmp_path, text).plan.engine.pool.size() == 3


def test_without_database_effects_are_external(tmp_path):
    """No database, no transaction to be part of."""
    app = loaded(tmp_path, WITHOUT_DATABASE.replace("[decide]", "[direct]"))
    assert (app.plan.engine, app.plan.consumers[0].effects) == (None, Effects.EXTERNAL)


def test_a_consumer_overrides_its_topic(tmp_path):
    """Key, version and strategies of the consumer win over the topic's."""
    found = loaded(
        tmp_path,
        BASE.replace(
            "topic: orders,", "topic: orders, key: body.other, strategies: [guard: {a: 1}, decide],"
        ),
    )
    assert [type(strategy).__name__ for strategy in found.plan.consumers[0].strategies] == ["Guard", "Decide"]
    assert found.consumers[0].key == "body.other"


def test_retry_is_inherited_field_by_field(tmp_path):
    """Defaults, consumer and the built-in policy each give what the nearer does not say."""
    app = loaded(
        tmp_path,
        BASE.replace("topic: orders,", "topic: orders, retry: {attempts: 3},")
        + "defaults: {retry: {attempts: 9, backoff: {first: 2s}}}\n",
    )
    retry = app.plan.consumers[0].retry
    assert (retry.attempts, retry.first, retry.factor) == (3, timedelta(seconds=2), 4.0)


def test_a_strategy_limits_the_batch(tmp_path):
    """A strategy that can handle seven items is never given more."""
    assert consumer(tmp_path, "strategies: [guard, decide]").batch_limit == 7


def test_what_is_not_ours_at_a_topic_goes_to_the_adapter(tmp_path):
    """Broker options of a topic reach the subscription as declared."""
    app = loaded(
        tmp_path, BASE.replace(ORDERS, "{key: body.id, strategies: [decide], queue: q1, arguments: {x: 1}}")
    )
    assert app.plan.consumers[0].subscription.options == {"queue": "q1", "arguments": {"x": 1}}


def test_a_schema_refuses_bodies_for_every_consumer(tmp_path):
    """A topic's schema is checked when a message is read."""
    handlers = "from pydantic import BaseModel\nclass Order(BaseModel):\n    id: int\ndef handle(order: dict) -> None: ...\n"
    text = BASE.replace(ORDERS, '{key: body.id, strategies: [decide], schema: "MODULE:Order"}')
    reader = loaded(tmp_path, text, handlers=handlers).plan.consumers[0].reader
    with pytest.raises(InvalidPayload):
        reader.read(Message(topic="orders", body=b'{"id": "x"}'))
    assert reader.read(Message(topic="orders", body=b'{"id": 1}'))[1] == {"id": 1}


@pytest.mark.parametrize(
    ("handlers", "said"),
    [
        ("def handel(order): ...\n", "app.yaml:7:35: 'MODULE' has no 'handle' – did you mean 'handel'?"),
        (
            "handle = 3\n",
            "app.yaml:7:35: 'MODULE:handle' is not a function – name a function: def handler(order: dict) -> None",
        ),
        (
            "import nonexistent_thing\n",
            "app.yaml:7:35: module 'MODULE' cannot be imported: ModuleNotFoundError: No module named 'nonexistent_thing' – correct FOLDER/MODULE.py:1",
        ),
        (
            "x = 1\n\n\ny = 1 / 0\n",
            "app.yaml:7:35: module 'MODULE' cannot be imported: ZeroDivisionError: division by zero – correct FOLDER/MODULE.py:4",
        ),
        (
            "def handle(:\n",
            "app.yaml:7:35: module 'MODULE' cannot be imported: SyntaxError: invalid syntax – correct FOLDER/MODULE.py:1",
        ),
        (
            "import sys\nsys.exit(0)\n",
            "app.yaml:7:35: module 'MODULE' cannot be imported: SystemExit: 0 – correct FOLDER/MODULE.py:2",
        ),
    ],
)
def test_trouble_in_the_users_module_is_told_with_its_line(tmp_path, handlers, said):
    """What is wrong in the handlers' file is one sentence with file and line, and no traceback."""
    assert [
        line.replace("FOLDERMODULE", "FOLDER/MODULE") for line in problems(tmp_path, BASE, handlers=handlers)
    ] == [said.replace("FOLDER/", "")]


def test_an_unknown_module_is_answered_with_the_nearest_file(tmp_path):
    """Modules beside the file are suggested."""
    (tmp_path / "handlers.py").write_text("")
    said = problems(tmp_path, BASE.replace("MODULE:handle", "handlrs:handle"))
    assert said == ["app.yaml:7:35: there is no module 'handlrs' – did you mean 'handlers'?"]


def test_an_unknown_parameter_is_refused_at_the_handler(tmp_path):
    """A parameter that no one can fill is told at start."""
    (said,) = problems(
        tmp_path, BASE, handlers="def handle(order: dict, mailer: object, x: int) -> None: ...\n"
    )
    assert said.startswith("app.yaml:7:35: handler MODULE:handle: ")


RULES = [
    (
        "strategies: [guard]",
        "count: guard only guards: a lock is no memory of what was applied – add one that decides, such as unique_key; or none, if effects may happen twice",
    ),
    (
        "strategies: [direct]",
        "count: strategy direct cannot work where effects are in the database – write effects: external, or another strategy",
    ),
    (
        "effects: external, strategies: [decide]",
        "count: strategy decide cannot work where effects are external – write effects: database, or a strategy for external effects such as two_phase",
    ),
    ("strategies: [decide, decide]", "count: decide stands in the list twice – keep one"),
    (
        "strategies: [decide, order]",
        "count: identity is the key alone, so every later message of a key would count as a duplicate of its first – declare version: body.…, or identity: with what tells two messages of one key apart",
    ),
    (
        "identity: key, version: body.v, strategies: [decide, order]",
        "count: identity is the key alone, so every later message of a key would count as a duplicate of its first – declare version: body.…, or identity: with what tells two messages of one key apart",
    ),
    (
        "keep: 1m",
        "count: records are kept for 1m, but retries can take 6.82m: a late retry of an applied message would take effect again – write keep: longer than 6.82m, or fewer or shorter retries",
    ),
    (
        "limits: {soft: 2s, hard: 1s}",
        "count: the soft limit 2s is not below the hard limit 1s – leave the soft one time to roll back before the process ends",
    ),
]


@pytest.mark.parametrize(("more", "said"), RULES)
def test_what_cannot_be_safe_is_refused(tmp_path, more, said):
    """Rules 10 and 15: each refusal names the consumer and what to change."""
    (line,) = problems(tmp_path, BASE.replace("topic: orders,", f"topic: orders, {more},"))
    assert line.partition(" ")[2] == said
    assert line.startswith("app.yaml:7:")


def test_a_soft_limit_that_ends_nothing_is_a_warning(tmp_path):
    """A function with external effects is not interrupted; a coroutine is."""
    text = BASE.replace("topic: orders,", "topic: orders, effects: external, limits: {soft: 1s},")
    text = text.replace("strategies: [decide]", "strategies: [none]")
    (said,) = [
        str(warning)
        for warning in loaded(tmp_path, text).warnings
        if warning.text.startswith("count: limits")
    ]
    assert "only logged – write limits: {hard: …}, or make the handler `async def`" in said
    handlers = "async def handle(order: dict) -> None: ...\n"
    (tmp_path / "again").mkdir()
    again = loaded(tmp_path / "again", text, handlers=handlers).warnings
    assert not [warning for warning in again if "limits" in str(warning)]


def test_guards_with_none_written_are_allowed(tmp_path):
    """Who writes `none` has said that effects may happen twice."""
    assert consumer(tmp_path, "strategies: [guard, none]").strategies


def test_no_strategy_at_all_is_refused(tmp_path):
    """At-least-once must be said out loud."""
    (said,) = problems(tmp_path, BASE.replace(", strategies: [decide]", ""))
    assert "no strategies, so a message that is delivered twice takes effect twice" in said


def test_two_consumers_in_one_group_are_refused(tmp_path):
    """Each would see only some of the messages."""
    text = BASE + '  more: {topic: orders, group: shop-count, handler: "MODULE:handle"}\n'
    (said,) = problems(tmp_path, text)
    assert said.startswith("app.yaml:8:32: more and count share topic 'orders' in one group")


def test_database_effects_without_database_are_refused(tmp_path):
    """There is nothing to be transactional with."""
    said = problems(tmp_path, WITHOUT_DATABASE.replace("topic: orders,", "topic: orders, effects: database,"))
    assert any("effects: database, but the app has no database" in line for line in said)


def test_an_async_handler_in_transactions_needs_a_second_connection(tmp_path):
    """A database in memory has only one."""
    (said,) = problems(tmp_path, BASE.replace("MODULE:handle", "MODULE:later"))
    assert said.startswith("app.yaml:")
    assert "an in-memory SQLite database has only one: write sqlite:///file.db" in said


@pytest.mark.parametrize(
    ("url", "package"),
    [("sqlite:///shop.db", "aiosqlite"), ("mysql://host/db", "asyncmy"), ("sqlite:///shop.db", "greenlet")],
)
def test_the_missing_driver_of_an_async_handler_is_named(tmp_path, monkeypatch, url, package):
    """With the line that installs it."""
    monkeypatch.setitem(sys.modules, package, None)
    (said,) = problems(tmp_path, BASE.replace("MODULE:handle", "MODULE:later").replace("sqlite://", url, 1))
    assert f"need the package {package!r}, which is not installed: pip install 'oncemq[async]'" in said


def test_fewer_messages_in_flight_than_workers_is_a_warning(tmp_path):
    """The app may start, and its owner is told."""
    app = loaded(tmp_path, BASE.replace("topic: orders,", "topic: orders, workers: 8, in_flight: 4,"))
    assert [warning.text for warning in app.warnings] == [
        "count: in_flight: 4 leaves some of 8 workers without a message"
    ]
    assert app.plan.warnings == tuple(str(warning) for warning in app.warnings)


def test_the_state_folder_lies_beside_the_file(tmp_path):
    """Two apps started from one folder do not share flight recorders."""
    assert loaded(tmp_path, BASE).plan.state == tmp_path / ".oncemq"


def test_metrics_without_their_package_are_refused_by_check_already(tmp_path, monkeypatch):
    """An app with an address is not found incomplete only when it starts."""
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    monkeypatch.delitem(sys.modules, "oncemq.observe.metrics", raising=False)
    with pytest.raises(MissingExtra, match=r"pip install 'oncemq\[metrics\]'"):
        loaded(tmp_path, BASE + 'http: {address: "127.0.0.1:0"}\n')


@pytest.mark.parametrize(
    ("more", "holds"),
    [
        ("strategies: [decide, held]", True),
        ("strategies: [held], on_retry: go_on", False),
        ("strategies: [decide]", False),
        ("strategies: [decide], on_retry: hold_key", True),
    ],
)
def test_keys_are_held_where_order_matters(tmp_path, more: str, holds: bool):
    """A chain whose messages take places waits for those that are tried again, unless it says otherwise."""
    assert consumer(tmp_path, more).hold_key is holds


def test_two_consumers_do_not_decide_by_one_column(tmp_path):
    """The second would find every message done; both names and the way out are told."""
    text = BASE.replace("topic: orders,", "topic: orders, strategies: [held: {column: rides.status}],")
    more = '\n  mail: {topic: orders, handler: "MODULE:handle", strategies: [decide, held: {column: rides.status}]}\n'
    (told,) = problems(tmp_path, text.rstrip("\n") + more)
    assert (
        "count and mail decide about the messages of topic 'orders' by the same column rides.status" in told
    )
    assert "give one of them a column of its own" in told


@pytest.mark.parametrize("identity", ["topic", "[topic]", "\"[topic, 'v1']\"", '"`1`"'])
def test_an_identity_that_all_messages_share_is_refused(tmp_path, identity: str):
    """All but the first message would be its duplicates."""
    (told,) = problems(tmp_path, BASE.replace("topic: orders,", f"topic: orders, identity: {identity},"))
    assert "the same for every message" in told


@pytest.mark.parametrize(
    ("more", "isolated"), [("isolate: true", True), ("isolate: false", False), ("", False)]
)
def test_a_consumer_may_have_each_call_isolated(tmp_path, more: str, isolated: bool):
    """Where settings cannot be seen, each call of the handler has a transaction of its own."""
    assert consumer(tmp_path, ", ".join(filter(None, ["strategies: [decide]", more]))).isolate is isolated
