"""`tiered`: copies are found in a Bloom filter and in Redis, so that the database decides only about new messages."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Self

from sqlalchemy import Connection, MetaData, Table

from oncemq.common.durations import format_duration
from oncemq.common.problems import Problem
from oncemq.contracts.checks import ConsumerFacts
from oncemq.contracts.strategy import Scope, Strategy, Traits
from oncemq.contracts.unit import Item, Run, Unit
from oncemq.contracts.verdict import DUPLICATE_IN_REDIS, Outcome, Verdict, reject
from oncemq.errors import MessageRefused, RedisRefused
from oncemq.ledger.generations.registry import record_tables
from oncemq.message.envelope import Delivery
from oncemq_strategies.common.fingerprint import Fingerprint, fingerprint_option
from oncemq_strategies.common.identity_checks import check_records, check_transactional
from oncemq_strategies.common.options import Options
from oncemq_strategies.common.processed_records import ProcessedRecords, other_content
from oncemq_strategies.tiered.options import TierOptions, tier_options
from oncemq_strategies.tiered.tiers import Tiers


class Tiered(Strategy):
    """As `unique_key`, but most copies never reach the database.

    A message whose identity the filter has never seen goes straight to the insert, which decides. One that it may
    have seen is looked up in Redis, a whole unit in one round trip; a mark there says that the database has it.
    All others go to the insert. Filter and marks are written after the commit, so losing them, or an outage of
    Redis, costs only speed.

    Options, all optional:

    - `redis: false`: without marks. Default: with them.
    - `bloom: true`, or `bloom: {expected: 1000000, false_positives: 0.01}`: a filter in this process' memory, which
      saves querying Redis about new messages. It does not contain identities applied by other processes.
    - `bloom: shared`, or `bloom: {shared: true, name: orders-seen, expected: 1000000, false_positives: 0.01}`: a filter
      in Redis instead, filled with the identities applied by all processes. It is Redisson's `RBloomFilter`, for other
      services in Java and Python; `tiered` itself queries the marks, which are exact in the same round trip. Without
      marks it is not queried: whatever the filter said, the insert would have to decide.
    - `ttl: 7d`: minimum time that marks and filter remember; not less than retries can take, which is the default.
    - `fingerprint`, `result`: as for `unique_key`; the result is kept in the ledger alone.
    """

    traits: ClassVar[Traits] = Traits(decides=True, per_consumer=True)
    by_identity = True
    records_identity = True

    def __init__(
        self, records: ProcessedRecords, fingerprint: Fingerprint | None, options: TierOptions, scope: Scope
    ) -> None:
        self._records = records
        self._fingerprint = fingerprint
        self._options = options
        self._tiers = Tiers(options, scope)
        self._generations = scope.generations
        self.caches_applied = options.redis

    @classmethod
    def build(cls, options: Mapping[str, Any], scope: Scope) -> Self:
        """Build the strategy from its options."""
        given = Options("tiered", options, scope)
        given.known("redis", "bloom", "ttl", "fingerprint", "result")
        fingerprint = fingerprint_option(given)
        result = given.flag("result", default=False)
        records = ProcessedRecords(scope.clock, fingerprint, result=result, generations=scope.generations)
        return cls(records, fingerprint, tier_options(given, scope), scope)

    def missing_in_redis(self) -> Iterable[RedisRefused]:
        """Yield missing permissions of the Redis user, tried with a mark that no message has."""
        yield from self._tiers.missing_in_redis()

    def check(self, facts: ConsumerFacts) -> Iterable[Problem]:
        """Return why the configuration is unsafe or useless."""
        yield from check_transactional(facts, "tiered")
        yield from check_records(facts, "tiered")
        if "unique_key" in facts.strategies:
            yield Problem(
                "tiered and unique_key keep the same row of each message, so the later of the two would take every "
                "message for a duplicate of itself",
                "leave out unique_key: tiered is unique_key with caches before it",
                "strategies",
            )
        if self._options.ttl < facts.retry_horizon:
            yield Problem(
                f"marks are kept for {format_duration(self._options.ttl)}, but a message can come back after "
                f"{format_duration(facts.retry_horizon)} of retries",
                f"set `ttl` to {format_duration(facts.retry_horizon)} or longer, or leave it out",
                "strategies",
            )
        yield from self._tiers.check()

    def tables(self, metadata: MetaData) -> Sequence[Table]:
        """Return the table of processed messages, and that of its generations."""
        return record_tables(metadata, generations=self._generations)

    def reserve(self, unit: Unit) -> None:
        """Settle messages that are marked as applied; the rest goes to the database."""
        open_ = [candidate for candidate in unit.deliveries if _is_ours(unit, candidate)]
        found = self._tiers.look_up(
            [candidate.envelope.identity for candidate in open_ if candidate.envelope is not None]
        )
        if not found:
            return
        kept_off = 0
        for delivery in open_:
            print_ = found.get(delivery.envelope.identity) if delivery.envelope is not None else None
            if print_ is not None:
                verdict = unit.verdicts[delivery] = self._about(unit, delivery, print_)
                kept_off += verdict is DUPLICATE_IN_REDIS
        self._tiers.counts.add(kept_off=kept_off)

    def load(self, run: Run, items: Sequence[Item]) -> None:
        """Find out which items are new, all at once."""
        self._records.load(run, items)

    def decide(self, run: Run, item: Item) -> Verdict:
        """Return PROCEED, DUPLICATE or Conflict."""
        return self._records.decide(run, item)

    def record(self, run: Run, item: Item) -> None:
        """Remember this item for later copies in the same run."""
        self._records.record(run, item)

    def save(self, run: Run) -> None:
        """Store what is known now; remove rows of items that are not final."""
        self._records.save(run)

    def committed(self, run: Run) -> None:
        """Mark the identities that the database has now."""
        duplicates = sum(
            item.verdict is not None and item.verdict.outcome is Outcome.DUPLICATE for item in run.items
        )
        self._tiers.counts.add(duplicates=duplicates)
        self._tiers.remember(self._records.known(run))

    def figures(self) -> Mapping[str, float]:
        """Return figures on how well the tiers work."""
        return self._tiers.figures()

    def inspect(self, connection: Connection, key: str) -> Mapping[str, str]:
        """Return which of the key's messages are marked."""
        return self._tiers.inspect(connection, key)

    def forget(self, identities: Collection[str]) -> None:
        """Remove the marks of these messages."""
        self._tiers.forget(identities)

    def _about(self, unit: Unit, delivery: Delivery, print_: str) -> Verdict:
        envelope = delivery.envelope
        if self._fingerprint is None or not print_ or envelope is None:
            return DUPLICATE_IN_REDIS
        try:
            item = Item(delivery, envelope, unit.body(delivery))
        except MessageRefused as refusal:
            return reject(str(refusal), error=refusal, code=refusal.reason)
        same = print_ == self._fingerprint(item)
        return DUPLICATE_IN_REDIS if same else other_content(envelope.identity, envelope.key)


def _is_ours(unit: Unit, delivery: Delivery) -> bool:
    """Whether this strategy decides: a parked message is deleted by the transaction that decides about it."""
    return delivery.envelope is not None and delivery.source is None and delivery not in unit.verdicts
