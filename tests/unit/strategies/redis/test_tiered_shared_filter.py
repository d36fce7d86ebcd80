"""`tiered` with `bloom: shared`: others can read what was applied, and for as long as was promised."""

import logging

import pytest
from sqlalchemy import text
from sqlalchemy.orm import Session

from oncemq.config import load
from oncemq.config.build.catalog import Catalog
from oncemq.errors import ConfigError
from oncemq.testing.scripted import ScriptedAdapter
from oncemq_strategies.redisson import BloomFilter
from oncemq_strategies.tiered.strategy import Tiered
from support.database.ledgers import BOOKED, ledger_engine
from support.units import UnitBench, build, orders

TTL_MS = 100_000
CATALOG = Catalog({"scripted": ScriptedAdapter}, {"tiered": Tiered})


@pytest.fixture
def engine(sqlite_database):
    """A database with the ledger and a table of payments."""
    with ledger_engine(sqlite_database, BOOKED) as engine:
        yield engine


def pay(order: dict, session: Session) -> None:
    """Book a payment."""
    session.execute(text("INSERT INTO payments VALUES (:id)"), {"id": order["key"]})


@pytest.fixture
def tier(engine, client, fresh):
    """Return a function that makes a worker with its strategy, each time as another process would."""

    def make(handler=pay, **bloom):
        options = {"bloom": {"shared": True, "expected": 1000, **bloom}, "ttl": "100s"}
        strategy = build(Tiered, engine, fresh, options, redis=client)
        return UnitBench(engine, handler, strategy, name=fresh), strategy

    return make


@pytest.fixture
def name(fresh):
    """The filter that the consumer has by itself."""
    return f"oncemq:bloom:shop.{fresh}"


def grow_old(client, name):
    """Let the filter's newest generation be as old as `ttl`."""
    young = f"{{{name}}}:young"
    assert client.command("DEL", young, key=young) == 1


def ends(client, name):
    """Return in how many milliseconds a filter's bits and settings end."""
    return [client.command("PTTL", key, key=key) for key in (name, _settings(name))]


def _settings(name):
    return f"{name}:config" if "{" in name else f"{{{name}}}:config"


def test_others_can_read_what_was_applied(tier, client, name):
    """And what was not, is not there."""
    bench, _ = tier()
    bench.run(*orders("a", "b"))
    assert BloomFilter(client, name).contains_all(["a", "b", "c"]) == [True, True, False]


def test_nothing_is_added_before_the_commit(tier, client, name):
    """A message that failed is in no filter, since no one knows whether it will ever be applied."""

    def fail(order: dict, session: Session) -> None:
        if order["id"] == "b":
            raise ValueError

    bench, _ = tier(fail)
    assert bench.run(*orders("a", "b")) == ["applied", "retry"]
    assert BloomFilter(client, name).contains_all(["a", "b"]) == [True, False]


def test_a_filter_proves_nothing(tier, client, name):
    """What others added is applied all the same: the database has never seen it."""
    bench, _ = tier()
    bench.run(*orders("a"))
    BloomFilter(client, name).add("b")
    assert bench.run(*orders("b")) == ["applied"]


def test_the_filter_can_have_a_name(tier, client, fresh):
    """The one that a Java service knows."""
    bench, _ = tier(name=f"{fresh}-seen")
    bench.run(*orders("a"))
    assert BloomFilter(client, f"{fresh}-seen").contains("a")


def test_an_old_generation_is_remembered_as_long_again(tier, client, name):
    """A new one takes its place, both are filters for Java too, and everything has an end."""
    bench, _ = tier()
    bench.run(*orders("a"))
    grow_old(client, name)
    bench.run(*orders("b"))
    now, before = BloomFilter(client, name), BloomFilter(client, f"{{{name}}}:previous")
    assert now.contains_all(["a", "b"]) == [False, True]
    assert before.contains_all(["a", "b"]) == [True, False]
    assert all(TTL_MS - 20_000 < end <= TTL_MS for end in ends(client, before.name))
    assert all(2 * TTL_MS - 20_000 < end <= 2 * TTL_MS for end in ends(client, now.name))


def test_a_young_generation_stays(tier, client, name):
    """However much is added, nothing is forgotten before its time; not by another process either."""
    for ids in (["a"], ["b"], ["c"]):
        bench, _ = tier()
        bench.run(*orders(*ids))
    assert all(BloomFilter(client, name).contains_all(["a", "b", "c"]))
    previous = f"{{{name}}}:previous"
    assert client.command("EXISTS", previous, key=previous) == 0


def test_a_filter_that_others_made_is_theirs(tier, client, name):
    """It is filled in its own size, and neither renewed nor given an end."""
    theirs = BloomFilter(client, name)
    theirs.try_init(50, 0.2)
    theirs.add("java")
    for ids in (["a"], ["b"]):
        bench, _ = tier()
        bench.run(*orders(*ids))
    assert all(theirs.contains_all(["java", "a", "b"]))
    assert theirs.shape().expected == 50
    assert ends(client, name) == [-1, -1]


def test_another_size_counts_from_the_next_generation_on(tier, client, name):
    """What was promised to be remembered is not thrown away for it."""
    first, _ = tier()
    first.run(*orders("a"))
    second, _ = tier(expected=5000)
    second.run(*orders("b"))
    assert all(BloomFilter(client, name).contains_all(["a", "b"]))
    assert BloomFilter(client, name).shape().expected == 1000
    grow_old(client, name)
    second.run(*orders("c"))
    assert BloomFilter(client, name).shape().expected == 5000
    assert BloomFilter(client, name).contains("c")


def test_a_full_filter_says_so_once(tier, caplog):
    """When it takes more new identities for seen than it was made for; it forgets none for that."""
    bench, strategy = tier(expected=20, false_positives=0.05)
    with caplog.at_level(logging.WARNING):
        bench.run(*orders(*(f"m{n}" for n in range(15))))
        assert caplog.records == []
        assert 0.5 < strategy.figures()["bloom_fill"] < 1.0
        for start in (100, 200, 300):
            bench.run(*orders(*(f"m{start + n}" for n in range(30))))
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "is full" in caplog.text
    assert "more than 20 identities" in caplog.text
    assert strategy.figures()["bloom_fill"] > 1.0
    assert strategy.figures()["false_positive_rate"] > 0.05


def test_a_name_that_is_taken_by_something_else(tier, client, fresh, caplog):
    """It is said once; marks go on, and the database decides."""
    taken = f"{fresh}-list"
    client.command("RPUSH", taken, "x", key=taken)
    client.command("EXPIRE", taken, "600", key=taken)
    bench, strategy = tier(name=taken)
    with caplog.at_level(logging.WARNING):
        assert bench.run(*orders("a")) == ["applied"]
        assert bench.run(*orders("a", "b")) == ["duplicate", "applied"]
    assert [record for record in caplog.messages if "is not filled" in record] == caplog.messages
    assert len(caplog.messages) == 1
    assert strategy.figures()["kept_off_database"] == 1.0
    assert strategy.figures()["redis_circuit_open"] == 0.0


def test_a_filter_alone_leaves_all_to_the_database(engine, client, fresh, name):
    """Without marks it is filled for others and asked by no one: yes or no, the insert would decide all the same."""
    strategy = build(Tiered, engine, fresh, {"bloom": "shared", "redis": False}, redis=client)
    bench = UnitBench(engine, pay, strategy, name=fresh)
    BloomFilter(client, name).try_init(1000, 0.01)
    BloomFilter(client, name).add("b")  # as a false positive would have it
    assert bench.run(*orders("a", "b"), *orders("a")) == ["applied", "applied", "duplicate"]
    assert bench.run(*orders("a", "b", "c")) == ["duplicate", "duplicate", "applied"]
    assert BloomFilter(client, name).contains_all(["a", "b", "c"]) == [True, True, True]
    assert strategy.figures()["kept_off_database"] == 0.0


APP = """\
app: shop
brokers: {main: {url: "scripted://host"}}
database: {url: "sqlite://"}
redis: {url: "redis://127.0.0.1:1"}
topics:
  orders: {key: body.id}
consumers:
  count:
    {topic: orders, handler: "MODULE:handle", strategies: [tiered: {ttl: 7d, bloom: {shared: true, name: seen}}]}
  mail:
    topic: orders
    handler: "MODULE:handle"
    strategies:
      - tiered: OPTIONS
"""


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("{ttl: 3d, bloom: {shared: true, name: seen}}", "ttl 3d and 7d"),
        ("{ttl: 7d, bloom: {shared: true, name: seen, expected: 5}}", "expected 5 and 1000000"),
        ("{bloom: {shared: true, name: seen, false_positives: 0.1}}", "false_positives 0.1 and 0.01"),
    ],
)
def test_one_filter_cannot_be_two(tmp_path, options, words):
    """Anyone who renews it would decide for the other consumer: refused at its place, with what to write."""
    (tmp_path / "shop_of_filters.py").write_text("def handle(order: dict) -> None: ...")
    (tmp_path / "app.yaml").write_text(APP.replace("OPTIONS", options).replace("MODULE", "shop_of_filters"))
    with pytest.raises(ConfigError, match="the same ttl, expected and false_positives") as caught:
        load([tmp_path / "app.yaml"], environment={}, catalog=CATALOG)
    [problem] = [str(problem) for problem in caught.value.problems]
    assert words in problem
    assert "shop.mail and shop.count fill one Bloom filter, 'seen'" in problem
    assert "app.yaml:14:" in problem


@pytest.mark.parametrize(
    "options",
    [
        "{ttl: 7d, bloom: {shared: true, name: seen}}",
        "{ttl: 3d, bloom: {shared: true, name: other}}",
        "{ttl: 3d}",
    ],
)
def test_consumers_may_share_a_filter_or_have_their_own(tmp_path, options):
    """Alike, they fill one; under other names each has its own."""
    (tmp_path / "shop_of_filters.py").write_text("def handle(order: dict) -> None: ...")
    (tmp_path / "app.yaml").write_text(APP.replace("OPTIONS", options).replace("MODULE", "shop_of_filters"))
    load([tmp_path / "app.yaml"], environment={}, catalog=CATALOG)
