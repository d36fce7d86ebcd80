"""TLS, logins and rights at a real Kafka: the right ones get through, all others are refused in one sentence that says why."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, cast
from uuid import uuid4

import pytest
import structlog
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from oncemq.contracts.adapter import DeadLetterRequest, Sink, Subscription
from oncemq.errors import BrokerError, BrokerRefused, BrokerUnavailable
from oncemq.message.envelope import OutgoingMessage
from oncemq.testing.adapter_suite import Topic
from oncemq.testing.adapter_suite.bench import Bench, later, numbered
from oncemq_adapters.kafka.address import parse_address
from oncemq_adapters.kafka.administration import Administration
from oncemq_adapters.kafka.assignment import Window
from oncemq_adapters.kafka.group_member import GroupMember
from oncemq_adapters.kafka.names import place_of
from services import catalog
from support.apps.program import eventually
from support.brokers.kafka import SharedKafka, adapter_on
from support.facts import facts_of
from support.tls.cases import Material
from support.tls.kafka import TlsKafka

pytestmark = [pytest.mark.server, pytest.mark.slow, pytest.mark.timeout(300)]

WRONG = "wrong-and-secret"
UNPROVEN = "no connection with TLS: the broker's certificate cannot be verified: ca must hold its authority"


@pytest.fixture(scope="module")
def material(tmp_path_factory: pytest.TempPathFactory) -> Material:
    """The certificates."""
    return Material(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def server(material: Material) -> Iterator[TlsKafka]:
    """A Kafka of this module's own."""
    servers = catalog.OwnServers(catalog.FOLDER)
    server = servers.make(TlsKafka)
    assert isinstance(server, TlsKafka)
    server.material = material
    try:
        server.start()
        yield server
    finally:
        servers.remove(server)


def login(server: TlsKafka, material: Material, **changed: Any) -> dict[str, Any]:
    """Return the options of one who may come in, with some of them changed; None leaves one out."""
    usual = {
        "ca": str(material.trusted["ours"]),
        "username": server.user,
        "password": server.settings.password,
        "connect_timeout": "5s",
        # The first message to a node that has just started takes its time on busy cores: its TLS, the producer's id.
        "publish_timeout": "60s",
    }
    return {name: value for name, value in {**usual, **changed}.items() if value is not None}


@pytest.mark.parametrize("sasl", ["PLAIN", "SCRAM-SHA-512"])
def test_a_message_goes_round_over_tls(server: TlsKafka, material: Material, sasl: str) -> None:
    """Published, received and settled by an account that logs in with this mechanism."""
    options = login(server, material, sasl=sasl)
    bench = Bench(SharedKafka(f"kafka://{server.host('secure')}", **options))
    try:
        topic = bench.topic()
        member = bench.open(bench.subscription(topic))
        bench.publish(topic, *numbered(3))
        bench.settled(member.adapter.acknowledge(bench.receive(member, 3)))
    finally:
        bench.close_all()


def test_a_client_with_a_certificate_needs_no_login(server: TlsKafka, material: Material) -> None:
    """With cert and key the account is the certificate's."""
    own = material.served["address"]
    options = {
        "ca": str(material.trusted["ours"]),
        "cert": str(own.certificate),
        "key": str(own.key),
    }
    adapter = adapter_on(f"kafka://{server.host('mutual')}", **options)
    adapter.prepare([])
    adapter.close(grace=timedelta(seconds=1))


@dataclass(frozen=True)
class Case:
    """One who does not come in.

    Args:
        listener: where it tries.
        why: what the error says.
        changed: its options, where they differ from those that are right.
        host: by which name it asks.
        error: of which kind.
    """

    listener: str
    why: str
    changed: dict[str, Any]
    host: str = "localhost"
    error: type[BrokerError] = BrokerRefused


NO_LOGIN = {"username": None, "password": None}
CASES = {
    "wrong password": Case("secure", "refuses user 'oncemq': .*Authentication failed", {"password": WRONG}),
    "wrong password by SCRAM": Case(
        "secure",
        "refuses user 'oncemq': .*uthentication failed",
        {"password": WRONG, "sasl": "SCRAM-SHA-512"},
    ),
    "a mechanism that is not offered": Case(
        "secure", "refuses user 'oncemq': .*SCRAM-SHA-512", {"sasl": "SCRAM-SHA-256"}
    ),
    "unknown authority": Case("secure", UNPROVEN, {"ca": "other"}),
    "system's authorities": Case("secure", UNPROVEN, {"ca": None, "tls": True}),
    "wrong host": Case("secure", UNPROVEN, {}, host="127.0.0.1"),
    "expired": Case("expired", UNPROVEN, NO_LOGIN),
    "other host's": Case("elsewhere", UNPROVEN, NO_LOGIN),
    "self-signed": Case("self", UNPROVEN, NO_LOGIN),
    "no certificate of its own": Case(
        "mutual",
        "it asks clients for a certificate: write cert and key",
        {**NO_LOGIN, "connect_timeout": "2s"},
        error=BrokerError,
    ),
    "TLS where plain text is spoken": Case(
        "kafka",
        "connecting to a PLAINTEXT broker listener",
        {"connect_timeout": "2s"},
        host="127.0.0.1",
        error=BrokerUnavailable,
    ),
    "plain text where TLS is spoken": Case(
        "secure", "no answer.*write tls: true", {"ca": None, "connect_timeout": "2s"}, error=BrokerUnavailable
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_who_cannot_come_in_is_told_why(server: TlsKafka, material: Material, case: Case) -> None:
    """One sentence with the host, without the password, and no try without an end."""
    options = login(server, material, **case.changed)
    if options.get("ca") == "other":
        options["ca"] = str(material.trusted["other"])
    url = f"kafka://{server.host(case.listener, case.host)}"
    adapter = adapter_on(url, **options)
    try:
        with pytest.raises(case.error, match=case.why) as caught:
            adapter.prepare([])
    finally:
        adapter.close(grace=timedelta(seconds=1))
    text = str(caught.value)
    assert server.host(case.listener, case.host) in text
    assert WRONG not in text
    assert server.settings.password not in text
    assert "\n" not in text


def test_a_member_whose_login_is_refused_later_says_so(server: TlsKafka, material: Material) -> None:
    """It goes on trying, is unhealthy with the broker's words, and logs them once."""
    address = parse_address(f"kafka://{server.host('secure')}", login(server, material, password=WRONG))
    subscription = Subscription("points", "orders", "reports")
    member = GroupMember(
        address, subscription, place_of(subscription), cast(Sink, None), "app", Window(10), retries=False
    )
    with structlog.testing.capture_logs() as lines:
        member.start()
        eventually(lambda: "Authentication failed" in member.health().detail, "the refusal to be told", 30)
        member.stop()
        member.finish(30)
    assert [line["event"] for line in lines] == ["broker-refuses-member"]
    assert WRONG not in str(lines)


def test_a_broker_that_takes_little_metadata_stops_no_commit(server: TlsKafka, material: Material) -> None:
    """What is settled with many gaps is told without its metadata, and the offset goes on where the gaps close."""
    options = login(server, material)
    url = f"kafka://{server.host('secure')}"
    bench = Bench(SharedKafka(url, **options))
    try:
        name, topic_options = bench.topic()
        topic = Topic(name, {**topic_options, "partitions": 1})
        subscription = bench.subscription(topic)
        member = bench.open(subscription)
        bench.publish(topic, *(OutgoingMessage(body, key="one") for body in numbered(300)))
        held = bench.receive(member, 300)
        # Two thirds are settled, in runs that need more metadata than the broker takes.
        bench.settled(member.adapter.acknowledge([each for at, each in enumerate(held) if at == 0 or at % 3]))
        operator = Administration(parse_address(url, options), "operator")
        place = place_of(subscription, bench.harness.options["namespace"])

        def offset() -> int:
            found = operator.committed(place.group, place.topic.name)
            return found[0].offset if found else -1

        eventually(lambda: offset() == 3, "the offset before the first gap", 20)
        bench.settled(member.adapter.acknowledge(held[3::3]))
        eventually(lambda: offset() == 300, "the end", 20)
    finally:
        bench.close_all()


Right = tuple[ResourceType, str, AclOperation]
TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP


def grant(server: TlsKafka, material: Material, rights: Iterable[Right]) -> None:
    """Give the guest these rights; a name that ends with a star is a prefix."""
    settings = parse_address(f"kafka://{server.host('secure')}", login(server, material)).client("operator")
    acls = [
        AclBinding(
            kind,
            name.rstrip("*"),
            ResourcePatternType.PREFIXED if name.endswith("*") else ResourcePatternType.LITERAL,
            f"User:{server.guest}",
            "*",
            operation,
            AclPermissionType.ALLOW,
        )
        for kind, name, operation in rights
    ]
    client = AdminClient(settings)
    for future in client.create_acls(acls).values():
        future.result(10)


class Account:
    """The guest, with rights on a topic and a group of its own."""

    def __init__(self, server: TlsKafka, material: Material) -> None:
        url = f"kafka://{server.host('secure')}"
        self.topic, group = f"t{uuid4().hex[:8]}", f"g{uuid4().hex[:8]}"
        self.subscription = Subscription("points", self.topic, group, {"create": False})
        self.own = f"oncemq.{group}.*"
        self.place = place_of(self.subscription)
        self.operator = Administration(parse_address(url, login(server, material)), "operator")
        self.operator.create(self.topic, 2, {})
        harness = SharedKafka(url, **login(server, material, username=server.guest))
        del harness.options["namespace"]
        self.bench = Bench(harness)

    def may(self, *topic: AclOperation, own: Iterable[AclOperation]) -> list[Right]:
        """Return rights on the topic, those on topics of the group, and reading as the group."""
        return [
            *((TOPIC, self.topic, each) for each in topic),
            *((TOPIC, self.own, each) for each in own),
            *((GROUP, each, AclOperation.READ) for each in (self.place.group, self.own)),
        ]


@pytest.fixture
def account(server: TlsKafka, material: Material) -> Iterator[Account]:
    """Yield one without any right."""
    account = Account(server, material)
    yield account
    account.bench.close_all()


def test_the_documented_rights_are_enough(server: TlsKafka, material: Material, account: Account) -> None:
    """An account with nothing but these consumes, retries, buries, replays and publishes, and can be examined."""
    may, bench, subscription = AclOperation, account.bench, account.subscription
    own = [may.READ, may.WRITE, may.CREATE, may.DELETE, may.DESCRIBE_CONFIGS]
    grant(server, material, account.may(may.READ, may.WRITE, may.DESCRIBE_CONFIGS, own=own))
    member = bench.open(subscription)
    bench.publish(Topic(account.topic, {}), *numbered(3))
    held = bench.receive(member, 3)
    bench.settled(member.adapter.acknowledge(held[:1]))
    bench.settled(member.adapter.retry([later(held[1], 0.1)]))
    bench.settled(member.adapter.dead_letter([DeadLetterRequest(held[2], {})]))
    (letter,) = member.adapter.dead_letters(subscription, 10)
    assert member.adapter.replay_dead_letters(subscription, [letter.id]) == 1
    bench.receive(member, 5)
    assert member.adapter.depth(subscription) is not None
    assert list(member.adapter.examine(facts_of(account.topic, account.place.group, name="points"))) == []


def test_a_start_that_makes_nothing_looks_at_no_settings(
    server: TlsKafka, material: Material, account: Account
) -> None:
    """Where an operator has made the group's topics, reading and writing is enough."""
    may, bench = AclOperation, account.bench
    grant(server, material, account.may(may.READ, may.WRITE, own=[may.READ, may.WRITE]))
    account.operator.create(account.place.retries, 8, {})
    account.operator.create(account.place.dead, 1, {})
    member = bench.open(account.subscription)
    bench.publish(Topic(account.topic, {}), b"one")
    bench.settled(member.adapter.acknowledge(bench.receive(member, 1)))
