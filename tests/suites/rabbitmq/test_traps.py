"""What was seen to go wrong with RabbitMQ, each held against a real server."""

import shlex
import shutil
import socket
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from time import monotonic
from urllib.parse import urlsplit

import pytest
from pika import BasicProperties

from oncemq import App
from oncemq.contracts.adapter import (
    CONFIRMED,
    DeadLetterRequest,
    Refused,
    RetryRequest,
    Subscription,
)
from oncemq.errors import AlreadySettled, BrokerRefused, BrokerUnavailable, DeliveryVoid, Unroutable
from oncemq.message import headers as names
from oncemq.message.envelope import OutgoingMessage
from oncemq.testing.tcp_proxy import LOOPBACK, TcpProxy
from oncemq_adapters.rabbitmq.publishing import confirms
from services import catalog
from services.container import Container
from services.server import Server
from services.servers.rabbitmq import RabbitMQ
from support.benches.rabbitmq_traps import (
    GRACE,
    SOON,
    Open,
    eventually,
    is_subscribed,
    open_adapter,
    properties_of,
    put,
    subscription_of,
)
from support.brokers.rabbitmq import adapter_on, connect, through
from support.facts import facts_of

__all__ = ["open_adapter"]


@pytest.fixture(scope="module")
def module_server() -> Iterator[Server | Container]:
    """Start one server that the tests of this file may hurt."""
    servers = catalog.OwnServers(catalog.FOLDER)
    server = servers.make(RabbitMQ)
    server.start()
    yield server
    servers.remove(server)


@pytest.fixture
def own_server(module_server: Server | Container) -> RabbitMQ:
    """Return that server, running; rabbitmqctl needs it to be a process of this machine."""
    assert isinstance(module_server, RabbitMQ), "needs a RabbitMQ that is installed here, not a container"
    module_server.start()
    return module_server


def test_unroutable_retry_is_not_lost(rabbitmq_url: str, fresh: str, open_adapter: Open) -> None:
    """A retry queue that was deleted behind our back is declared again; the confirmation alone would hide the loss."""
    subscription = subscription_of(fresh)
    adapter, sink = open_adapter(rabbitmq_url, subscription)
    put(rabbitmq_url, f"{fresh}-group.{fresh}.paid", b"first", b"second")
    first, second = sink.wait_for(2)
    assert not adapter.retry([RetryRequest(first, SOON, {})])
    sink.wait_for(3)
    connection = connect(rabbitmq_url)
    connection.channel().queue_delete(f"{fresh}-group.{fresh}.paid.retry.100")
    connection.close()
    assert not adapter.retry([RetryRequest(second, SOON, {})])
    assert sink.wait_for(4)[3].message.body == b"second"


def test_dead_letter_without_its_queue_stays_unsettled(
    rabbitmq_url: str, fresh: str, open_adapter: Open
) -> None:
    """When the dead-letter queue is gone, the delivery is not acknowledged away and can be settled otherwise."""
    adapter, sink = open_adapter(rabbitmq_url, subscription_of(fresh))
    put(rabbitmq_url, f"{fresh}-group.{fresh}.paid", b"x")
    (delivery,) = sink.wait_for(1)
    connection = connect(rabbitmq_url)
    connection.channel().queue_delete(f"{fresh}-group.{fresh}.paid.dead")
    connection.close()
    (failed,) = adapter.dead_letter([DeadLetterRequest(delivery, {})])
    assert isinstance(failed.error, BrokerRefused)
    assert "does not exist" in str(failed.error)
    assert not adapter.acknowledge([delivery])


def test_a_stale_tag_never_settles_another_message(rabbitmq_url: str, fresh: str, open_adapter: Open) -> None:
    """After a reconnect the tags start at 1 again; what was delivered before settles nothing."""
    parts = urlsplit(rabbitmq_url)
    with TcpProxy(LOOPBACK, parts.port or 0) as proxy:
        subscription = subscription_of(fresh)
        adapter, sink = open_adapter(through(rabbitmq_url, proxy.port), subscription)
        put(rabbitmq_url, f"{fresh}-group.{fresh}.paid", b"1", b"2", b"3")
        old = sink.wait_for(3)
        proxy.cut()
        new = sink.wait_for(6)[3:]
        assert [delivery.token.tag for delivery in old] == [delivery.token.tag for delivery in new]
        for failed in (*adapter.acknowledge(old), *adapter.retry([RetryRequest(old[0], SOON, {})])):
            assert isinstance(failed.error, DeliveryVoid)
        adapter.close(grace=GRACE)
    _, again = open_adapter(rabbitmq_url, subscription)
    assert sorted(again.bodies() or [got.message.body for got in again.wait_for(3)]) == [b"1", b"2", b"3"]


def test_eight_threads_acknowledge_at_once(rabbitmq_url: str, fresh: str, open_adapter: Open) -> None:
    """Any thread may settle at any time: the connection lives, and every message is settled exactly once."""
    subscription = subscription_of(fresh, in_flight=4000)
    adapter, sink = open_adapter(rabbitmq_url, subscription)
    put(rabbitmq_url, f"{fresh}-group.{fresh}.paid", *[b"%d" % number for number in range(2000)])
    deliveries = sink.wait_for(2000)
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda one: adapter.acknowledge([one]), [*deliveries, *deliveries]))
    failures = [failed for answer in answers for failed in answer]
    assert len(failures) == 2000
    assert all(isinstance(failed.error, AlreadySettled) for failed in failures)
    assert not sink.losses()
    adapter.close(grace=GRACE)
    assert adapter_on(rabbitmq_url).depth(subscription) == 0


def test_a_settled_retry_cannot_be_settled_again(rabbitmq_url: str, fresh: str, open_adapter: Open) -> None:
    """While a retry is being published the delivery is taken; afterwards it is settled."""
    adapter, sink = open_adapter(rabbitmq_url, subscription_of(fresh))
    put(rabbitmq_url, f"{fresh}-group.{fresh}.paid", b"x")
    (delivery,) = sink.wait_for(1)
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: adapter.retry([RetryRequest(delivery, SOON, {})]), range(8)))
    assert sorted(len(answer) for answer in answers) == [0] + [1] * 7
    sink.wait_for(2)
    assert sink.stays_at(2, 0.5)


def test_a_message_goes_round_again_and_again(rabbitmq_url: str, fresh: str, open_adapter: Open) -> None:
    """The same delay twice is no dead-letter cycle: the history that RabbitMQ would judge by does not travel."""
    adapter, sink = open_adapter(rabbitmq_url, subscription_of(fresh))
    put(rabbitmq_url, f"{fresh}-group.{fresh}.paid", b"x", headers={"tenant": 7}, expiration="60000")
    for attempt in range(1, 5):
        delivery = sink.wait_for(attempt)[-1]
        assert delivery.message.headers["tenant"] == "7"
        assert not adapter.retry([RetryRequest(delivery, SOON, {names.ATTEMPT: str(attempt + 1)})])
    properties = properties_of(sink.wait_for(5)[-1])
    assert len(properties.headers["x-death"]) == 1
    assert properties.headers["x-death"][0]["count"] == 1
    assert properties.headers["tenant"] == 7
    assert properties.expiration is None


def test_a_short_delay_does_not_wait_for_a_long_one(
    rabbitmq_url: str, fresh: str, open_adapter: Open
) -> None:
    """A message of 100 ms that was put behind one of 3 s comes back first."""
    adapter, sink = open_adapter(rabbitmq_url, subscription_of(fresh))
    put(rabbitmq_url, f"{fresh}-group.{fresh}.paid", b"long", b"short")
    long, short = sink.wait_for(2)
    started = monotonic()
    adapter.retry([RetryRequest(long, timedelta(seconds=3), {}), RetryRequest(short, SOON, {})])
    assert sink.wait_for(3)[2].message.body == b"short"
    assert monotonic() - started < 2.5


def test_a_copy_header_does_not_multiply_a_retry(rabbitmq_url: str, fresh: str, open_adapter: Open) -> None:
    """A message that came with CC is retried to its own group alone."""
    adapter, sink = open_adapter(rabbitmq_url, subscription_of(fresh))
    connection = connect(rabbitmq_url)
    connection.channel().queue_declare(f"{fresh}.copies")
    put(rabbitmq_url, f"{fresh}-group.{fresh}.paid", b"x", headers={"CC": [f"{fresh}.copies"]})
    adapter.retry([RetryRequest(sink.wait_for(1)[0], SOON, {})])
    sink.wait_for(2)
    copies = connection.channel().queue_declare(f"{fresh}.copies", passive=True).method.message_count
    connection.channel().queue_delete(f"{fresh}.copies")
    connection.close()
    assert copies == 1


def test_a_transient_message_becomes_a_lasting_dead_letter(
    rabbitmq_url: str, fresh: str, open_adapter: Open
) -> None:
    """A dead letter does not expire although its message would have."""
    subscription = subscription_of(fresh)
    adapter, sink = open_adapter(rabbitmq_url, subscription)
    put(rabbitmq_url, f"{fresh}-group.{fresh}.paid", b"x", expiration="300", delivery_mode=1)
    adapter.dead_letter([DeadLetterRequest(sink.wait_for(1)[0], {})])
    assert sink.stays_at(1, 0.5)
    (letter,) = adapter.dead_letters(subscription, 10)
    assert letter.message.body == b"x"


def test_looking_at_dead_letters_often_loses_none(rabbitmq_url: str, fresh: str, open_adapter: Open) -> None:
    """Thirty looks at a part neither drop a letter nor change the order, as a quorum queue's delivery limit would."""
    subscription = subscription_of(fresh)
    adapter, sink = open_adapter(rabbitmq_url, subscription)
    put(rabbitmq_url, f"{fresh}-group.{fresh}.paid", b"1", b"2", b"3", b"4")
    adapter.dead_letter([DeadLetterRequest(delivery, {}) for delivery in sink.wait_for(4)])
    for _ in range(30):
        assert [letter.message.body for letter in adapter.dead_letters(subscription, 2)] == [b"1", b"2"]
    assert [kept.message.body for kept in adapter.dead_letters(subscription, 9)] == [b"1", b"2", b"3", b"4"]


def test_foreign_dead_letters_have_an_id_too(rabbitmq_url: str, fresh: str) -> None:
    """What someone else put into the dead-letter queue can be listed twice alike, and removed."""
    subscription = subscription_of(fresh)
    adapter = adapter_on(rabbitmq_url)
    adapter.prepare([subscription])
    put(rabbitmq_url, f"{fresh}-group.{fresh}.paid.dead", b"1", b"2")
    first = list(adapter.dead_letters(subscription, 9))
    assert [letter.id for letter in first] == [letter.id for letter in adapter.dead_letters(subscription, 9)]
    assert adapter.purge_dead_letters(subscription, [first[1].id]) == 1
    assert [letter.message.body for letter in adapter.dead_letters(subscription, 9)] == [b"1"]


def test_twenty_thousand_messages_are_published_by_one_call(
    rabbitmq_url: str, fresh: str, open_adapter: Open
) -> None:
    """The time limit for confirmations is no limit on how much one call may publish."""
    adapter, sink = open_adapter(rabbitmq_url, subscription_of(fresh, in_flight=100))
    answers = adapter.publish(f"{fresh}.paid", {}, [OutgoingMessage(b"x")] * 20_000)
    assert answers == [CONFIRMED] * 20_000
    assert sink.losses() == []


def test_a_wrong_virtual_host_is_refused(rabbitmq_url: str, fresh: str) -> None:
    """The error names the virtual host and what to do."""
    with pytest.raises(BrokerRefused, match="set_permissions"):
        adapter_on(f"{rabbitmq_url}{fresh}").prepare([])


def test_operators_see_the_apps_name(own_server: RabbitMQ, fresh: str, open_adapter: Open) -> None:
    """The broker's list of connections shows the app and what each connection is for."""
    open_adapter(own_server.url, subscription_of(fresh))
    eventually(lambda: "tests (consuming)" in control(own_server, "list_connections", "client_properties"))


@pytest.mark.slow
def test_a_frozen_connection_is_noticed(rabbitmq_url: str, fresh: str, open_adapter: Open) -> None:
    """A half-open connection is noticed after 2 x (heartbeat + 5 s) and consuming goes on elsewhere."""
    parts = urlsplit(rabbitmq_url)
    with TcpProxy(LOOPBACK, parts.port or 0) as proxy:
        subscription = subscription_of(fresh)
        adapter, sink = open_adapter(through(rabbitmq_url, proxy.port), subscription, heartbeat="1s")
        proxy.freeze()
        sink.wait_for_loss(timeout=14)
        proxy.cut()
        proxy.thaw()
        eventually(lambda: is_subscribed(adapter))


@pytest.mark.slow
def test_a_memory_alarm_blocks_no_acknowledgement(
    own_server: RabbitMQ, fresh: str, open_adapter: Open
) -> None:
    """While the broker takes no messages, retries and publishing fail in time, and acknowledging goes on."""
    subscription = subscription_of(fresh)
    adapter, sink = open_adapter(own_server.url, subscription, publish_timeout="1s")
    put(own_server.url, f"{fresh}-group.{fresh}.paid", b"1", b"2", b"3", b"4")
    first, second, third, fourth = sink.wait_for(4)
    control(own_server, "set_vm_memory_high_watermark", "absolute", "1MB")
    try:
        (failed,) = adapter.retry([RetryRequest(first, SOON, {})])
        assert isinstance(failed.error, BrokerUnavailable)
        (failed,) = adapter.dead_letter([DeadLetterRequest(second, {})])
        assert isinstance(failed.error, BrokerUnavailable)
        assert "low on memory" in str(failed.error)
        assert not adapter.acknowledge([third, fourth])
        assert is_subscribed(adapter)
        eventually(lambda: unacknowledged(own_server, fresh) == "2")
    finally:
        control(own_server, "set_vm_memory_high_watermark", "0.8")

    eventually(lambda: not adapter.retry([RetryRequest(first, SOON, {})]))
    assert not adapter.dead_letter([DeadLetterRequest(second, {})])


@pytest.mark.slow
def test_consuming_resumes_after_a_restart(own_server: RabbitMQ, fresh: str, open_adapter: Open) -> None:
    """Health says no while the broker is away, and the consumer really receives afterwards."""
    subscription = subscription_of(fresh)
    adapter, sink = open_adapter(own_server.url, subscription)
    # In order: killed in the moment of its birth, a quorum queue of RabbitMQ 3.10 may never find a leader again.
    own_server.stop()
    sink.wait_for_loss()
    eventually(lambda: not is_subscribed(adapter))
    own_server.start()
    eventually(lambda: is_subscribed(adapter), 60)
    (answer,) = adapter.publish(subscription.topic, {}, [OutgoingMessage(b"after")])
    assert type(answer).__name__ == "Confirmed"
    assert sink.wait_for(1)[0].message.body == b"after"


def control(server: RabbitMQ, *arguments: str) -> str:
    """Run rabbitmqctl against a server."""
    scripts = sorted(Path("/usr/lib/rabbitmq/lib").glob("rabbitmq_server-*/sbin/rabbitmqctl"))
    program = str(scripts[-1]) if scripts else shutil.which("rabbitmqctl") or "rabbitmqctl"
    environment = {"PATH": "/usr/bin:/bin:/usr/sbin:/sbin", **server.environment}
    done = subprocess.run(
        [program, "-q", *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        **server.account.popen_arguments(),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def unacknowledged(server: RabbitMQ, fresh: str) -> str:
    """Return how many messages of the test's queue are delivered and not settled."""
    rows = control(server, "list_queues", "name", "messages_unacknowledged").splitlines()
    return next(row.split()[1] for row in rows if row.startswith(f"{fresh}-group.{fresh}.paid\t"))


def test_a_silent_host_keeps_no_other_from_being_tried(
    rabbitmq_url: str, fresh: str, open_adapter: Open
) -> None:
    """A first host that accepts and answers nothing costs a moment, not its connect_timeout for each connection."""
    with socket.create_server((LOOPBACK, 0)) as silent:
        url = through(rabbitmq_url, silent.getsockname()[1])
        started = monotonic()
        adapter, sink = open_adapter(
            url,
            subscription_of(fresh),
            hosts=[f"{LOOPBACK}:{urlsplit(rabbitmq_url).port}"],
            connect_timeout="20s",
        )
        assert monotonic() - started < 10
        put(rabbitmq_url, f"{fresh}-group.{fresh}.paid", b"x")
        assert not adapter.acknowledge(sink.wait_for(1))


def test_giving_back_does_not_spend_a_delivery_limit(
    rabbitmq_url: str, fresh: str, open_adapter: Open
) -> None:
    """A quorum queue that drops what was delivered more than eight times keeps what is given back twenty times."""
    connection = connect(rabbitmq_url)
    channel = connection.channel()
    limit = {"x-queue-type": "quorum", "x-delivery-limit": 8}
    channel.queue_declare(fresh, durable=True, arguments=limit)
    adapter, sink = open_adapter(rabbitmq_url, subscription_of(fresh, queue=fresh))
    put(rabbitmq_url, fresh, b"x", headers={"tenant": 7})
    for times in range(1, 21):
        assert not adapter.give_back(sink.wait_for(times)[-1:])
    last = sink.wait_for(21)[-1]
    assert (last.message.body, last.message.headers["tenant"]) == (b"x", "7")
    assert not adapter.acknowledge([last])
    channel.queue_delete(fresh)
    connection.close()


def test_check_tries_every_right_of_the_account(own_server: RabbitMQ, fresh: str) -> None:
    """An account that may not publish retries is found before the start, and the printed command mends it."""
    control(own_server, "add_user", fresh, "pass")
    control(own_server, "set_permissions", "-p", "/", fresh, f"^{fresh}.*|oncemq$", f"^{fresh}.*$", ".*")
    url = f"amqp://{fresh}:pass@{LOOPBACK}:{urlsplit(own_server.url).port}/"
    adapter = adapter_on(url)
    facts = facts_of(f"{fresh}.paid", f"{fresh}-group")
    try:
        (problem,) = adapter.examine(facts)
        assert "may not publish retries and dead letters to the default exchange" in problem.text
        assert "pass@" not in str(problem)
        command = shlex.split(problem.advice.removeprefix("run: "))
        control(own_server, *command[1:])
        adapter.close(grace=GRACE)
        adapter = adapter_on(url)
        assert adapter.examine(facts) == []
        adapter.prepare([Subscription("points", f"{fresh}.paid", f"{fresh}-group")])
    finally:
        adapter.close(grace=GRACE)


def test_a_message_that_ends_the_connection_takes_no_other_along(
    rabbitmq_url: str, fresh: str, open_adapter: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the broker ends the connection for is found by halves, and refused; the others of its call are confirmed."""
    monkeypatch.setattr(confirms, "_size", lambda _properties, _most: 0)
    adapter, sink = open_adapter(rabbitmq_url, Subscription("c", fresh, fresh))
    messages = [OutgoingMessage(str(at).encode(), {"h": "x"}) for at in range(10)]
    messages[6] = OutgoingMessage(b"large", {"h": "x" * 200_000})
    answers = adapter.publish(fresh, {}, messages)
    assert [at for at, answer in enumerate(answers) if answer is not CONFIRMED] == [6]
    assert isinstance(answers[6], Refused)
    assert isinstance(answers[6].error, BrokerRefused)
    # Each at least once, some of them twice: a confirmation may have been lost with a connection.
    others = {message.body for at, message in enumerate(messages) if at != 6}
    eventually(lambda: set(sink.bodies()) >= others)
    assert set(sink.bodies()) == others


def test_a_request_is_answered_after_a_restart_of_the_broker(own_server: RabbitMQ, fresh: str) -> None:
    """The queue for answers is there again, and the requester reads it."""
    with connect(own_server.url) as connection:
        channel = connection.channel()
        channel.exchange_declare("oncemq", "topic", durable=True)
        channel.queue_declare(fresh, durable=True)
        channel.queue_bind(fresh, "oncemq", fresh)
    app = App(fresh, brokers={"main": own_server.url})
    app.topic(fresh, key="body.id", strategies=["none"])
    with app.publisher() as publisher, ThreadPoolExecutor(1) as thread:
        asked = thread.submit(publisher.request, fresh, {"id": "a"}, wait="100s")
        with connect(own_server.url) as connection:
            channel = connection.channel()
            eventually(lambda: channel.queue_declare(fresh, passive=True).method.message_count == 1)
            _, properties, _ = channel.basic_get(fresh, auto_ack=True)
        own_server.kill()
        own_server.start()
        with connect(own_server.url) as connection:
            answer = BasicProperties(correlation_id=properties.correlation_id)
            connection.channel().basic_publish("", properties.reply_to, b"1", answer)
        assert asked.result(100) == 1


def test_a_queue_for_answers_that_is_not_permitted_is_named_at_once(own_server: RabbitMQ, fresh: str) -> None:
    """Instead of a wait for an answer that cannot come; with the right it works without a restart."""
    control(own_server, "add_user", fresh, fresh)
    control(own_server, "set_permissions", "-p", "/", fresh, "^oncemq$", ".*", ".*")
    parts = urlsplit(own_server.url)
    app = App(fresh, brokers={"main": f"amqp://{fresh}:{fresh}@{parts.hostname}:{parts.port}/"})
    app.topic(fresh, key="body.id", strategies=["none"])
    with app.publisher() as publisher:
        with pytest.raises(BrokerRefused, match=rf"oncemq\.replies\.{fresh}.*set_permissions"):
            publisher.request(fresh, {"id": "a"}, wait="60s")
        rights = rf"^(oncemq|oncemq\.replies\.{fresh}\..*)$"
        control(own_server, "set_permissions", "-p", "/", fresh, rights, ".*", ".*")

        def unroutable() -> bool:
            try:
                publisher.request(fresh, {"id": "a"}, wait="60s")
            except Unroutable:
                return True
            except BrokerRefused:
                return False
            return False

        eventually(unroutable)
