"""`check --connect` tries what each strategy does in Redis and names the rule of the user that is missing."""

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

import pytest

from oncemq.contracts.broker_queries import RedisStrategy
from oncemq.contracts.strategy import Strategy
from oncemq.redis import RedisClient
from oncemq.redis.address import parse_address
from oncemq.redis.connect import make_client
from oncemq.testing.scopes import scope_for
from oncemq_strategies.claims.redis_flag import RedisFlag
from oncemq_strategies.redis_lock.strategy import RedisLock
from oncemq_strategies.tiered.strategy import Tiered

Missing = Callable[[type[Strategy], dict[str, object], str], list[str]]
ALL = "~* &* +@all"


@pytest.fixture
def missing(redis_url: str, fresh: str) -> Iterator[Missing]:
    """Return what a user with these rules lacks for a strategy."""
    host, port = parse_address(redis_url).places[0]
    with closing(make_client(redis_url)) as admin:

        @contextmanager
        def user(rules: str) -> Iterator[RedisClient]:
            given = ("resetkeys", "resetchannels", "-@all", "+ping", *rules.split())
            admin.command("ACL", "SETUSER", fresh, "on", ">secret", *given, key="")
            with closing(make_client(f"redis://{fresh}:secret@{host}:{port}/0")) as client:
                yield client
            admin.command("ACL", "DELUSER", fresh, key="")

        def found(kind: type[Strategy], options: dict[str, object], rules: str) -> list[str]:
            with user(rules) as client:
                strategy = kind.build(options, scope_for(f"shop.{fresh}", None, redis=client))
                assert isinstance(strategy, RedisStrategy)
                return [str(error) for error in strategy.missing_in_redis()]

        yield found


KINDS = [
    pytest.param(RedisLock, {"name": "ride-{key}"}, "~ride-*", id="redis_lock"),
    pytest.param(RedisFlag, {"ttl": "1d", "in_doubt": "run"}, "~oncemq:flag:*", id="redis_flag"),
    pytest.param(Tiered, {"ttl": "8d"}, "~oncemq:mark:*", id="tiered"),
]


@pytest.mark.parametrize(("kind", "options", "keys"), KINDS)
def test_a_user_who_may_do_all_lacks_nothing(
    missing: Missing, kind: type[Strategy], options: dict[str, object], keys: str
) -> None:
    """What the strategy needs is what the rules say, no more."""
    assert missing(kind, options, ALL) == []
    assert missing(kind, options, f"{keys} &redisson_lock__channel:* +@all") == []


@pytest.mark.parametrize(("kind", "options", "keys"), KINDS)
def test_keys_that_may_not_be_touched_are_named(
    missing: Missing, kind: type[Strategy], options: dict[str, object], keys: str
) -> None:
    """The rule is the one for the keys of this strategy."""
    (said,) = missing(kind, options, "~other:* &* +@all")
    assert f"SETUSER {said.split('SETUSER ')[1].split()[0]} {keys}" in said


@pytest.mark.parametrize(("kind", "options", "keys"), KINDS)
def test_commands_that_may_not_be_used_are_named(
    missing: Missing, kind: type[Strategy], options: dict[str, object], keys: str
) -> None:
    """A user who may only read lacks what writes."""
    (said, *_) = missing(kind, options, "~* &* +@read +@connection")
    assert "+@write" in said
    assert keys in said


def test_channels_that_may_not_be_used_are_named(missing: Missing) -> None:
    """Redis 7's default for new users: locks work, and releases wake no waiters."""
    waking, waiting = missing(RedisLock, {"name": "ride-{key}"}, "~* +@all")
    assert "&redisson_lock__channel:* +publish" in waking
    assert "&redisson_lock__channel:* +subscribe" in waiting


def test_nothing_is_left_behind(missing: Missing, redis_url: str) -> None:
    """What was tried is gone."""
    for kind, options in ((RedisLock, {"name": "ride-{key}"}), (RedisFlag, {"ttl": "1d", "in_doubt": "run"})):
        assert missing(kind, options, ALL) == []
    with closing(make_client(redis_url)) as client:
        assert client.command("KEYS", "*oncemq-check*", key="") == []
