"""`redis_flag`: what each end of a handler leaves in Redis, and what comes of it when the message comes again."""

import threading
from datetime import timedelta

import pytest

from oncemq import Reject, Retry
from oncemq.common.problems import Severity
from oncemq.contracts.checks import Effects
from oncemq.contracts.verdict import Outcome
from oncemq.contracts.verification import Done, NotDone
from oncemq.errors import ConfigError, RedisUnavailable
from oncemq.ledger import schema
from oncemq.ledger.database.engine import make_engine
from oncemq.message.envelope import Envelope
from oncemq.testing.strategy_suite.bench import Bench, message
from oncemq.testing.strategy_suite.chain_spec import ChainSpec
from oncemq_strategies.claims.base import UNKNOWN_EFFECT
from oncemq_strategies.claims.ledger_claims import Phase
from oncemq_strategies.claims.redis_flag import RedisFlag
from oncemq_strategies.claims.redis_flags import Flags
from oncemq_strategies.claims.stored_messages import Doubt, Finish
from services.waiting import wait_until

LEASE = timedelta(milliseconds=400)
LONG = timedelta(minutes=10)
IDENTITY = "2:a:1"


@pytest.fixture
def worker(any_redis_url, sqlite_database, fresh):
    """Lend benches of one consumer with this strategy; each is a process of its own to Redis."""
    benches = []

    def new(handler=None, **options):
        chain = ChainSpec([("redis_flag", options)], direct=True, redis=any_redis_url)
        benches.append(Bench(sqlite_database, chain, f"suite.{fresh}", handler))
        return benches[-1]

    yield new
    for bench in benches:
        bench.close()


@pytest.fixture
def flags(client, fresh):
    """The flags themselves."""
    return Flags(client, f"suite.{fresh}", lease=LEASE, success=LONG, failed=LONG)


def envelope(identity=IDENTITY, key="a"):
    """Return an envelope with this identity."""
    return Envelope("broker", "suite", "group", key, None, identity, "m", 1, {}, b"", None)


def raising(error):
    """Return a handler that raises."""

    def handler(_body, _session):
        raise error

    return handler


def test_a_duplicate_is_given_the_result(worker, flags):
    """What the handler returned is kept, and nothing runs."""
    bench = worker(lambda body, _session: {"charge": body["n"]})
    assert bench.deliver(message("a", 1)) == [Outcome.PROCEED]
    [(identity, state)] = bench.strategies[0].inspect(None, "a").items()
    assert '{"charge":1}' in state
    held = flags.take([envelope(identity.removeprefix("flag "))], "me")
    assert [(flag.phase, flag.known_result()) for flag in held.values()] == [(Phase.DONE, {"charge": 1})]
    assert worker(raising(AssertionError())).deliver(message("a", 1)) == [Outcome.DUPLICATE]


@pytest.mark.parametrize("error", [Retry("later"), Reject("never")])
def test_who_says_that_nothing_happened_leaves_nothing(worker, error):
    """The message runs when it comes again, or is replayed."""
    bench = worker(raising(error))
    bench.deliver(message("a", 1))
    assert bench.strategies[0].inspect(None, "a") == {}
    assert worker().deliver(message("a", 1)) == [Outcome.PROCEED]


def test_a_failed_handler_leaves_a_failed_flag(worker):
    """The effect may have happened: the message is not run again, but shown to a person, with the reason."""
    assert worker(raising(ValueError("hung up"))).deliver(message("a", 1)) == [Outcome.RETRY]
    bench = worker()
    [verdict] = bench.verdicts(message("a", 1))
    assert (verdict.outcome, verdict.code) == (Outcome.REJECT, UNKNOWN_EFFECT)
    assert "hung up" in verdict.reason
    assert bench.effects() == []
    assert [
        "failed" in text and "hung up" in text for text in bench.strategies[0].inspect(None, "a").values()
    ] == [True]


def test_a_handler_may_fail_with_any_text(worker):
    """Half a surrogate pair cannot be sent; Redis is not away for that."""
    assert worker(raising(ValueError("bad name \ud800!"))).deliver(message("a", 1)) == [Outcome.RETRY]
    [verdict] = worker().verdicts(message("a", 1))
    assert r"bad name \ud800!" in verdict.reason


def test_verify_is_asked_about_a_failed_handler(worker):
    """Done makes it a duplicate for good."""
    options = {"verify": lambda _envelope: Done("found")}
    worker(raising(ValueError("hung up")), **options).deliver(message("a", 1))
    assert worker(**options).deliver(message("a", 1)) == [Outcome.DUPLICATE]
    assert worker().deliver(message("a", 1)) == [Outcome.DUPLICATE]


def test_a_handler_that_may_run_twice_does(worker):
    """Only where someone wrote so."""
    worker(raising(ValueError("hung up")), in_doubt="run").deliver(message("a", 1))
    bench = worker(in_doubt="run")
    assert bench.deliver(message("a", 1)) == [Outcome.PROCEED]
    assert bench.effects() == [("a", 1)]


def test_a_message_that_another_is_at_is_put_off(worker):
    """A foreign pending flag: later, at no attempt's cost."""
    entered, go = threading.Event(), threading.Event()

    def slow(body, session):
        entered.set()
        go.wait(20)
        first.apply(body, session)

    first = worker(slow)
    busy = threading.Thread(target=first.deliver, args=(message("a", 1),))
    busy.start()
    assert entered.wait(20)
    assert worker().deliver(message("a", 1)) == [Outcome.DEFER]
    go.set()
    busy.join()
    assert worker().deliver(message("a", 1)) == [Outcome.DUPLICATE]


def test_what_was_never_started_is_taken_over_after_its_lease(flags):
    """Not before; and its first owner can neither start it nor end it nor delete it any more."""
    assert flags.take([envelope()], "first")[IDENTITY].phase is Phase.OURS
    assert flags.take([envelope()], "second")[IDENTITY].phase is Phase.FOREIGN
    assert wait_until(lambda: flags.take([envelope()], "second")[IDENTITY].phase is Phase.OURS, seconds=5)
    assert flags.start([IDENTITY], "first") == [IDENTITY]
    assert flags.finish_all([Finish(IDENTITY, "first")]) == [False]
    assert not flags.doubt(IDENTITY, "first", "late")
    flags.drop([IDENTITY], "first")
    assert flags.start([IDENTITY], "second") == []
    assert flags.finish_all([Finish(IDENTITY, "second", "1")]) == [True]


def test_what_was_started_is_in_doubt_after_its_lease(flags):
    """No one knows whether its effect happened; one finds out, the others wait."""
    flags.take([envelope()], "first")
    flags.start([IDENTITY], "first")
    assert wait_until(lambda: flags.take([envelope()], "second")[IDENTITY].phase is Phase.DOUBTFUL, seconds=5)
    assert flags.take([envelope()], "third")[IDENTITY].phase is Phase.FOREIGN
    assert flags.finish_all([Finish(IDENTITY, "first")]) == [False]
    assert flags.undone(IDENTITY, "second")
    assert flags.start([IDENTITY], "second") == []


@pytest.mark.parametrize("called", [False, True])
def test_what_a_dead_process_left_is_finished_when_it_comes_again(worker, client, fresh, called):
    """A handler that was never called runs; about one that was, `verify` is asked, and what it says is kept."""
    asked = []

    def verify(envelope):
        asked.append(envelope.identity)
        return Done("found")

    bench = worker(verify=verify)
    identity = bench._delivery(message("a", 1)).envelope.identity
    dead = Flags(client, f"suite.{fresh}", lease=LONG, success=LONG, failed=LONG)
    dead.take([envelope(identity)], "dead")
    if called:
        dead.start([identity], "dead")
    assert bench.deliver(message("a", 1)) == [Outcome.DEFER]
    # From here on its lease is short: until then, opening a connection may take as long as it likes.
    ending = Flags(client, f"suite.{fresh}", lease=LEASE, success=LONG, failed=LONG)
    ending.take([envelope(identity)], "dead")
    ending.renew({"dead"})
    came = Outcome.DUPLICATE if called else Outcome.PROCEED
    assert wait_until(lambda: bench.deliver(message("a", 1)) == [came], seconds=5)
    assert asked == ([identity] if called else [])
    assert bench.effects() == ([] if called else [("a", 1)])
    assert bench.deliver(message("a", 1)) == [Outcome.DUPLICATE]


def test_what_was_claimed_for_many_is_in_doubt_after_its_lease(worker, client, fresh):
    """Where `verify` can answer, a claim says at once that its handler begins: no one knows which of a unit had begun."""
    asked = []
    bench = worker(verify=lambda envelope: asked.append(envelope.identity) or NotDone())
    identity = bench._delivery(message("a", 1)).envelope.identity
    dead = Flags(client, f"suite.{fresh}", lease=LEASE, success=LONG, failed=LONG, begun=True)
    dead.take([envelope(identity)], "dead")
    assert wait_until(lambda: bench.deliver(message("a", 1)) == [Outcome.PROCEED], seconds=5)
    assert asked == [identity]
    assert bench.effects() == [("a", 1)]


def test_an_old_claim_is_looked_at_before_its_handler_begins(client, fresh):
    """A process that was stopped in between may have lost it."""
    first, second = (
        Flags(client, f"suite.{fresh}", lease=LEASE, success=LONG, failed=LONG, begun=True) for _ in range(2)
    )
    first.take([envelope()], "first")
    assert wait_until(
        lambda: second.take([envelope()], "second")[IDENTITY].phase is Phase.DOUBTFUL, seconds=5
    )
    assert first.start_waits("first")
    assert first.start([IDENTITY], "first") == [IDENTITY]


def test_a_new_claim_for_many_asks_nothing_more(client, fresh):
    """It says already that its handler begins."""
    flags = Flags(client, f"suite.{fresh}", lease=LONG, success=LONG, failed=LONG, begun=True)
    flags.take([envelope()], "first")
    assert not flags.start_waits("first")
    assert flags.start([IDENTITY], "first") == ()


def test_several_outcomes_are_written_at_once(flags):
    """Ends, doubts and dropped claims of several owners, each compared with its own."""
    flags.take([envelope("a", "k"), envelope("b", "k"), envelope("c", "k")], "me")
    flags.take([envelope("d", "k")], "you")
    flags.start(["a", "b", "c"], "me")
    assert flags.finish_all([Finish("a", "me", "1"), Finish("d", "me")]) == [True, False]
    flags.doubt_all([Doubt("b", "me", "cut off"), Doubt("d", "me", "stolen")])
    flags.drop_all([("c", "me"), ("d", "me")])
    found = flags.take([envelope(identity, "k") for identity in "abcd"], "other")
    assert [found[identity].phase for identity in "abcd"] == [
        Phase.DONE,
        Phase.DOUBTFUL,
        Phase.OURS,
        Phase.FOREIGN,
    ]


def test_a_living_owner_keeps_its_flag(flags):
    """However long its handler takes."""
    flags.take([envelope()], "first")
    flags.start([IDENTITY], "first")
    ends = threading.Event()
    for _ in range(8):
        flags.renew({"first"})
        assert flags.take([envelope()], "second")[IDENTITY].phase is Phase.FOREIGN
        ends.wait(0.1)
    assert flags.finish_all([Finish(IDENTITY, "first")]) == [True]


def test_a_living_owner_outlives_the_time_that_ends_are_remembered(client, fresh):
    """A handler may take longer than `ttl`: as long as it is renewed, no one else begins."""
    flags = Flags(client, f"suite.{fresh}", lease=LONG, success=LEASE, failed=LEASE)
    flags.take([envelope()], "first")
    flags.start([IDENTITY], "first")
    name = flags.name(IDENTITY)
    least = LONG.total_seconds() * 1000
    assert client.command("PTTL", name, key=name) > least
    client.command("PEXPIRE", name, 1000, key=name)
    flags.renew({"first"})
    assert client.command("PTTL", name, key=name) > least
    assert flags.take([envelope()], "second")[IDENTITY].phase is Phase.FOREIGN


def test_everything_may_be_applied_twice(flags):
    """An answer may be lost, and the same said again."""
    assert [flags.take([envelope()], "me")[IDENTITY].phase for _ in range(2)] == [Phase.OURS] * 2
    assert [flags.start([IDENTITY], "me") for _ in range(2)] == [[], []]
    assert [flags.finish_all([Finish(IDENTITY, "me", "1")]) for _ in range(2)] == [[True], [True]]
    flags.drop([IDENTITY], "me")
    assert flags.take([envelope()], "other")[IDENTITY].phase is Phase.DONE


def test_no_flag_lives_for_ever(client, flags):
    """Pending or ended, each has a time to live, a little longer than was asked for and its lease."""
    for step in (lambda: flags.take([envelope()], "me"), lambda: flags.finish_all([Finish(IDENTITY, "me")])):
        step()
        name = flags.name(IDENTITY)
        left = client.command("PTTL", name, key=name)
        assert LONG.total_seconds() * 1000 - 5000 < left <= LONG.total_seconds() * 1100 + 400


def test_a_handler_that_ran_is_written_down_although_redis_was_away(worker, monkeypatch):
    """That alone is done again, and the handler is not."""
    ran = []
    bench = worker(lambda _body, _session: ran.append(1))
    real, tries = bench.strategies[0]._flags.finish_all, []

    def finish_all(*arguments, **more):
        tries.append(1)
        if len(tries) < 3:
            raise RedisUnavailable("away")
        return real(*arguments, **more)

    monkeypatch.setattr(bench.strategies[0]._flags, "finish_all", finish_all)
    assert bench.deliver(message("a", 1)) == [Outcome.PROCEED]
    assert (len(ran), len(tries)) == (1, 3)


def test_other_content_is_a_conflict(worker):
    """The flag knows the fingerprint."""
    options = {"fingerprint": ["body.amount"]}
    worker(**options).deliver(message("a", 1, 5))
    assert worker(**options).deliver(message("a", 1, 6)) == [Outcome.CONFLICT]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"lease": "1ms"}, "renewed"),
        ({"in_doubt": "perhaps"}, "not possible"),
        ({"in_doubt": "run", "verify": print}, "keep one"),
        ({"verify": 7}, "not a function"),
        ({"ttl": {"done": "7d"}}, "success or failed"),
        ({"ttl": {"failed": "soon"}}, "soon"),
        ({"ttls": "7d"}, "did you mean"),
    ],
)
def test_wrong_options_are_refused(scope, options, words):
    """With what to write."""
    with pytest.raises(ConfigError, match=words):
        RedisFlag.build(options, scope)


def test_what_cannot_be_safe_is_refused(scope, facts):
    """A time shorter than retries, a missing Redis; a missing `verify` is warned of."""
    found = list(
        RedisFlag.build({"ttl": {"failed": "30m", "success": "7d"}}, scope).check(
            facts(effects=Effects.EXTERNAL)
        )
    )
    assert [problem.severity for problem in found] == [Severity.ERROR, Severity.ERROR, Severity.WARNING]
    assert "failed is remembered for 30m" in found[1].text


def test_flags_from_before_a_restore_are_not_believed(client, engine_of_app, fresh):
    """Where the app has a database; without one, and before the first restore, flags have their plain names."""
    plain = Flags(client, fresh, lease=LEASE, success=LONG, failed=LONG)

    def opened():
        return Flags(client, fresh, lease=LEASE, success=LONG, failed=LONG, engine=engine_of_app)

    assert opened().name("a") == plain.name("a")
    opened().take([envelope("a")], "me")
    assert opened().finish_all([Finish("a", "me")]) == [True]
    assert opened().take([envelope("a")], "you")["a"].phase is Phase.DONE
    schema.restored(engine_of_app)
    assert opened().take([envelope("a")], "you")["a"].phase is Phase.OURS
    assert plain.take([envelope("a")], "you")["a"].phase is Phase.DONE


@pytest.fixture
def engine_of_app(sqlite_database):
    """The database of an app, with its ledger."""
    engine = make_engine(sqlite_database)
    schema.create(engine)
    yield engine
    engine.dispose()
