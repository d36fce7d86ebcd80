"""What URL and options mean, and what `check` says about them."""

import subprocess
import sys
import zlib
from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace

import pytest

from oncemq.common.problems import Severity
from oncemq.contracts.checks import ConsumerFacts, Effects
from oncemq.errors import ConfigError
from oncemq_adapters.rocketmq.grpc.checks import check_consumer
from oncemq_adapters.rocketmq.grpc.copies import unpack
from oncemq_adapters.rocketmq.grpc.settings import parse_settings
from services.servers.rocketmq import RocketMQ
from support.servers import url_from

URL = "rocketmq+grpc://key:secret@one:8081,two"


def facts(**changed: object) -> ConsumerFacts:
    """Return facts of a consumer about which nothing is to be said."""
    plain = ConsumerFacts(
        "app", "consumer", "topic", "group", Effects.DATABASE, "rocket", ("unique_key",), (), False,
        timedelta(days=7), timedelta(hours=1), 6, False, "postgresql", 1, 1000, timedelta(milliseconds=50), None, None,
    )  # fmt: skip
    return replace(plain, **changed)


def test_url_and_options_are_understood() -> None:
    """Endpoints get the proxy's port, credentials are read and never shown."""
    settings = parse_settings(URL, {"lease": "90s", "name_servers": ["names:9876"]})
    assert settings.endpoints == ("one:8081", "two:8081")
    assert (settings.username, settings.password) == ("key", "secret")
    assert settings.lease == timedelta(seconds=90)
    assert settings.administration is not None
    assert settings.administration.name_servers == ("names:9876",)
    assert settings.administration.password == "secret"
    assert "secret" not in repr(settings)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"leese": "9s"}, "did you mean 'lease'"),
        ({"lease": "13h"}, "lease"),
        ({"password": "x", "username": "a", "tls": False, "ca": __file__}, "write tls: true"),
        ({"ca": "nowhere.pem"}, "cannot be read"),
        ({"addresses": "x"}, "addresses must say"),
        ({"trace": True}, "consume through rocketmq://"),
    ],
)
def test_what_cannot_work_is_refused(options: dict[str, object], text: str) -> None:
    """Each problem is said in words, without the secret."""
    with pytest.raises(ConfigError, match=text) as caught:
        parse_settings(URL, options)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("broker", "changed", "severity", "text"),
    [
        ({"name_servers": ["n"]}, {}, None, ""),
        ({}, {}, Severity.WARNING, "name_servers"),
        ({}, {"options": {"start": "last"}}, Severity.ERROR, "name_servers"),
        ({"name_servers": ["n"], "lease": "5s"}, {}, Severity.ERROR, "too short"),
        (
            {"name_servers": ["n"]},
            {"options": {"fifo": True}, "attempts": 20},
            Severity.WARNING,
            "gives up after 16",
        ),
        (
            {"name_servers": ["n"]},
            {"options": {"tags": ["a"], "filter": "b = 1"}},
            Severity.ERROR,
            "not by both",
        ),
        (
            {"name_servers": ["n"]},
            {"retry_horizon": timedelta(days=9)},
            Severity.WARNING,
            "shorten the backoff",
        ),
        (
            {"name_servers": ["n"]},
            {"longest_pause": timedelta(hours=25)},
            Severity.WARNING,
            "maxDelayTimeMills",
        ),
        (
            {"name_servers": ["n"]},
            {"options": {"tags": ["a"]}, "routes_by": "headers.tags", "routes": ("a", "b")},
            Severity.WARNING,
            "the route 'b' never matches",
        ),
    ],
)
def test_check(
    broker: dict[str, object], changed: dict[str, object], severity: Severity | None, text: str
) -> None:
    """What cannot be safe is said, and nothing else."""
    found = list(check_consumer(facts(**changed), parse_settings(URL, broker)))
    assert [problem.severity for problem in found] == ([severity] if severity else [])
    assert all(text in str(problem) for problem in found)


@pytest.mark.parametrize(
    ("body", "packed", "trouble"),
    [
        (b"x" * 99, zlib.compress(b"x" * 99), ""),
        (b"no", b"no", "unpacked"),
        (None, zlib.compress(b"x" * 99)[:-3], "cut"),
    ],
)
def test_packed_bodies(body: bytes | None, packed: bytes, trouble: str) -> None:
    """What Java packed is unpacked; what cannot be is kept as it came, and the reason told."""
    raw = SimpleNamespace(body=packed, system_properties=SimpleNamespace(body_encoding=2))
    assert trouble in unpack(raw)
    assert raw.body == (body if body is not None else packed)


def test_the_interpreter_ends_without_a_close(rocketmq_url: str) -> None:
    """A process that opens, forgets to close and returns from main is gone soon, without a word on standard error."""
    program = """
import sys
from uuid import uuid4
from oncemq.contracts.adapter import AdapterScope, Subscription
from oncemq.common.clock import SystemClock
from oncemq.testing.recording_sink import RecordingSink
from oncemq_adapters.rocketmq.grpc import RocketMQGrpcAdapter
options = {"name_servers": [sys.argv[2]], "namespace": uuid4().hex[:10]}
adapter = RocketMQGrpcAdapter.build(sys.argv[1], options, AdapterScope("app", "rocket", SystemClock()))
adapter.open([Subscription("one", "topic", "group", {"create": True})], RecordingSink())
print("open")
"""
    servers = rocketmq_url.rpartition("@")[2]
    arguments = [sys.executable, "-c", program, url_from(f"{RocketMQ.variable}_GRPC"), servers]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "open\n", "")
