"""`check --connect` compares what policies do to a group's queues, which the management API alone shows."""

import base64
import json
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from oncemq.common.problems import Problem, Severity
from oncemq.contracts.adapter import RetryRequest, Subscription
from oncemq.testing.recording_sink import RecordingSink
from services.servers.rabbitmq import PASSWORD, USER, ManagedRabbitMQ
from support.apps.command_line import CommandLine, run_program
from support.apps.program import eventually
from support.brokers.rabbitmq import adapter_on, connect
from support.facts import facts_of
from support.servers import own_server

GRACE = timedelta(seconds=5)
SetPolicy = Callable[..., None]


@pytest.fixture(scope="module")
def managed() -> Iterator[ManagedRabbitMQ]:
    """A server with the management API, for this file."""
    with own_server(ManagedRabbitMQ) as server:
        yield server


def request(server: ManagedRabbitMQ, method: str, path: str, body: Any = None) -> None:
    """Ask the management API to change something."""
    login = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
    headers = {"Authorization": f"Basic {login}", "Content-Type": "application/json"}
    asked = urllib.request.Request(
        f"{server.management}/api/{path}", json.dumps(body or {}).encode(), headers, method=method
    )
    urllib.request.urlopen(asked, timeout=60).close()


@pytest.fixture
def set_policy(managed: ManagedRabbitMQ, fresh: str) -> Iterator[SetPolicy]:
    """Sets a policy for the queues of this test, until its end."""
    made: list[str] = []

    def put(
        suffix: str, *, operator: bool = False, priority: int = 0, to: str = "queues", **definition: Any
    ) -> None:
        settings = {key.replace("_", "-"): value for key, value in definition.items()}
        made.append(f"{'operator-' * operator}policies/%2F/{fresh}-{len(made)}")
        body = {"pattern": f"^{fresh}{suffix}", "definition": settings, "apply-to": to, "priority": priority}
        request(managed, "PUT", made[-1], body)

    yield put
    for path in made:
        request(managed, "DELETE", path)


def found(managed: ManagedRabbitMQ, fresh: str, options: Any = None, **facts: Any) -> list[Problem]:
    """Return what `check --connect` finds about a consumer of the topic `<fresh>.paid` in the group `<fresh>-group`."""
    adapter = adapter_on(managed.url, management=managed.management)
    try:
        return list(
            adapter.examine(facts_of(f"{fresh}.paid", f"{fresh}-group", options=options or {}, **facts))
        )
    finally:
        adapter.close(grace=GRACE)


def test_nothing_is_said_of_policies_that_limit_nothing(
    managed: ManagedRabbitMQ, fresh: str, set_policy: SetPolicy
) -> None:
    """Such as those about replication, and those of other queues."""
    set_policy("", ha_mode="all")
    set_policy("-other", message_ttl=1000)
    set_policy("", to="exchanges", alternate_exchange="x")
    assert found(managed, fresh) == []


@pytest.mark.parametrize("operator", [False, True])
def test_a_policy_on_the_length_of_the_queue_is_said(
    managed: ManagedRabbitMQ, fresh: str, set_policy: SetPolicy, operator: bool
) -> None:
    """Before any queue exists, by its name; one that refuses publishers loses nothing, and nothing is said."""
    set_policy("-group[.].*paid$", operator=operator, max_length=10)
    (problem,) = found(managed, fresh)
    assert (problem.severity, problem.where) == (Severity.WARNING, "topic")
    assert f"the queue '{fresh}-group.{fresh}.paid' has room for 10 messages" in problem.text
    assert f"({'operator ' * operator}policy '{fresh}-0')" in problem.text
    set_policy("-group[.].*paid$", priority=1, overflow="reject-publish", max_length=20)
    assert found(managed, fresh) == []


def test_the_smaller_of_what_a_user_and_an_operator_say_holds(
    managed: ManagedRabbitMQ, fresh: str, set_policy: SetPolicy
) -> None:
    """Of each kind the policy with the highest priority counts alone."""
    set_policy(".*paid$", message_ttl=1000)
    set_policy(".*paid$", priority=3, message_ttl=60_000)
    set_policy(".*paid$", operator=True, message_ttl=90_000)
    (problem,) = found(managed, fresh)
    assert "longer than 1m " in problem.text
    assert f"'{fresh}-1'" in problem.text


def test_retry_queues_that_expire_are_an_error(
    managed: ManagedRabbitMQ, fresh: str, set_policy: SetPolicy
) -> None:
    """Their messages are lost: said once, though there may be a queue for each pause."""
    set_policy(".*[.]retry[.]", operator=True, expires=600_000)
    (problem,) = found(managed, fresh, {"partitions": 4})
    assert problem.severity is Severity.ERROR
    assert problem.where == "retry"
    assert "10m after they were made, with the messages that wait in them: these are lost" in problem.text


def test_retries_that_come_too_early_are_said(
    managed: ManagedRabbitMQ, fresh: str, set_policy: SetPolicy
) -> None:
    """Only where a pause of the consumer is longer than the policy allows."""
    set_policy(".*[.]retry[.]", message_ttl=60_000)
    assert found(managed, fresh, longest_pause=timedelta(seconds=60)) == []
    (problem,) = found(managed, fresh, longest_pause=timedelta(seconds=61))
    assert "comes after 1m already" in problem.text


@pytest.mark.parametrize(
    ("dialect", "definition", "said"),
    [
        ("postgresql", {"message_ttl": 60_000}, "RabbitMQ deletes dead letters in "),
        ("postgresql", {"expires": 60_000}, "with its dead letters when it was neither read nor declared for 1m"),
        ("postgresql", {"max_length": 3}, "has room for 3 messages: the ledger keeps further ones"),
        ("", {"max_length_bytes": 9000}, "has room for 9000 bytes: further messages stay unsettled"),
    ],
)  # fmt: skip
def test_a_policy_on_dead_letters_is_said(
    managed: ManagedRabbitMQ,
    fresh: str,
    set_policy: SetPolicy,
    dialect: str,
    definition: dict[str, int],
    said: str,
) -> None:
    """What becomes of them depends on the policy, and on whether there is a ledger that keeps what is refused."""
    set_policy(".*[.]dead$", operator=True, **definition)
    (problem,) = found(managed, fresh, dialect=dialect)
    assert problem.where == "group"
    assert said in problem.text


def test_arguments_of_a_queue_of_others_count(managed: ManagedRabbitMQ, fresh: str) -> None:
    """It was declared elsewhere, so its own arguments are compared beside the policies."""
    connection = connect(managed.url)
    connection.channel().queue_declare(
        fresh, arguments={"x-message-ttl": 5000, "x-expires": 9_000_000}, durable=True
    )
    ttl, expires = found(managed, fresh, {"queue": fresh})
    connection.channel().queue_delete(fresh)
    connection.close()
    assert "longer than 5s in the queue" in ttl.text
    assert "RabbitMQ drops it or dead-letters it elsewhere (its declaration)" in ttl.text
    assert f"RabbitMQ deletes the queue '{fresh}' with its messages" in expires.text


def test_what_is_said_of_short_lives_is_what_the_server_does(
    managed: ManagedRabbitMQ, fresh: str, set_policy: SetPolicy
) -> None:
    """A retry comes when the policy's time is over, long before its own; a message that waits too long is a dead letter."""
    set_policy("-group[.].*paid($|[.]retry)", operator=True, message_ttl=300)
    subscription = Subscription("points", f"{fresh}.paid", f"{fresh}-group", {"prefetch": 1})
    adapter, sink = adapter_on(managed.url), RecordingSink()
    adapter.open([subscription], sink)
    channel = (connection := connect(managed.url)).channel()
    for body in b"first", b"second":
        channel.basic_publish("", f"{fresh}-group.{fresh}.paid", body)
    (delivery,) = sink.wait_for(1)
    eventually(lambda: len(list(adapter.dead_letters(subscription, 10))) == 1, "a message that expired")
    assert not adapter.retry([RetryRequest(delivery, timedelta(minutes=5), {})])
    *_, again = sink.wait_for(2, 30)
    assert again.message.body == b"first"
    adapter.close(grace=GRACE)
    connection.close()


@contextmanager
def user(managed: ManagedRabbitMQ, name: str, tags: str) -> Iterator[str]:
    """An account that may use all queues, with these tags; yields its URL."""
    request(managed, "PUT", f"users/{name}", {"password": "secret", "tags": tags})
    rights = {"configure": ".*", "write": ".*", "read": ".*"}
    request(managed, "PUT", f"permissions/%2F/{name}", rights)
    yield managed.url.replace(f"{USER}:{PASSWORD}", f"{quote(name)}:secret")
    request(managed, "DELETE", f"users/{name}")


def test_an_account_that_may_not_ask_is_told_which_tag_it_lacks(managed: ManagedRabbitMQ, fresh: str) -> None:
    """With `management`, the least one, it may."""
    for tags, expected in {"": ["(401 Unauthorized)"], "management": []}.items():
        with user(managed, fresh, tags) as url:
            adapter = adapter_on(url, management=managed.management)
            problems = list(adapter.examine(facts_of(f"{fresh}.paid", f"{fresh}-group")))
            adapter.close(grace=GRACE)
        assert len(problems) == len(expected)
        for problem, said in zip(problems, expected, strict=True):
            assert said in problem.text
            assert "set_user_tags" in problem.advice


def test_without_the_api_check_says_that_policies_are_not_compared(
    rabbitmq_url: str, fresh: str, tmp_path: Path
) -> None:
    """In words and in JSON, with the option that makes it possible; the app may run all the same."""
    app = CommandLine(tmp_path)
    broker = f'shop: {{url: "{rabbitmq_url}"}}'
    text = app.app.read_text().replace(f'shop: {{url: "embedded:///{tmp_path}/broker.db"}}', broker)
    app.app.write_text(text.replace("app: loyalty", f"app: {fresh}"))
    run_program("-f", str(app.app), "tables", "create")
    answer = run_program("-f", str(app.app), "check", "--connect")
    assert answer.exit_code == 0, answer.output
    assert "not compared: policies that limit the length" in answer.output
    assert "add management: http://host:15672 to the broker (broker shop)" in answer.output
    (said,) = json.loads(run_program("-f", str(app.app), "check", "--connect", "--json").stdout)[
        "not_compared"
    ]
    assert said.startswith("policies that limit")


def test_a_binding_that_no_route_needs_is_named(managed: ManagedRabbitMQ, fresh: str) -> None:
    """It stays at the broker after a change of the routes, and its messages would have none."""
    adapter = adapter_on(managed.url)
    before = {"exchange": fresh, "routing_keys": ["order.paid", "order.sent"]}
    adapter.prepare([Subscription("points", f"{fresh}.paid", f"{fresh}-group", before)])
    adapter.close(grace=GRACE)
    assert found(managed, fresh, before) == []
    (problem,) = found(managed, fresh, {"exchange": fresh, "routing_keys": ["order.paid"]})
    assert problem.severity is Severity.WARNING
    assert f"is still bound to exchange '{fresh}' by 'order.sent'" in problem.text
