"""Checks a consumer's settings on Kafka, and compares them with what the cluster has."""

from collections.abc import Iterable, Iterator, Mapping
from datetime import timedelta

from oncemq.common.durations import format_duration
from oncemq.common.problems import Problem, Severity
from oncemq.contracts.checks import ConsumerFacts
from oncemq_adapters.kafka.address import Address
from oncemq_adapters.kafka.administration import Administration
from oncemq_adapters.kafka.names import Place, read_topic

_ELIGIBLE = "true"


def check_consumer(facts: ConsumerFacts, address: Address) -> Iterator[Problem]:
    """Yield what cannot work, and what surprises."""
    _, problems = read_topic(facts.topic, facts.options, address.namespace)
    for problem in problems:
        yield Problem(problem.text, problem.advice, f"topic.{problem.where}")
    if facts.longest_pause >= address.retry_retention:
        yield Problem(
            f"a retry can pause for {format_duration(facts.longest_pause)}, but Kafka keeps it for "
            f"{format_duration(address.retry_retention)}: such retries become dead letters",
            "set the broker's retry_retention well above the longest pause",
            "broker.retry_retention",
        )
    limit = facts.hard_limit or facts.soft_limit
    if limit is not None and limit > address.handover:
        yield Problem(
            f"a handler may run for {format_duration(limit)}, but a partition that goes to another member waits "
            f"{format_duration(address.handover)} for it: then it is voided, and another member runs its message too",
            "set the broker's handover above the time limit; the ledger finds the copy, but the time is spent twice",
            "broker.handover",
            Severity.WARNING,
        )


def examine(
    administration: Administration, facts: ConsumerFacts, place: Place, kept: timedelta
) -> Iterable[Problem]:
    """Return what the cluster lacks, or has configured differently than this consumer needs.

    Args:
        administration: asks the cluster.
        facts: of the consumer.
        place: its topics.
        kept: how long retries are kept.
    """
    name = place.topic.name
    if not administration.partitions(name, fresh=True):
        if not place.topic.create:
            yield Problem(f"there is no topic {name!r}", "make it, or write create: true", "topic.topic_name")
        return
    settings = administration.settings(name)
    yield from _durability(administration, name, settings)
    yield from _retention(facts, name, settings)
    if administration.partitions(place.retries, fresh=True):
        yield from _retries(place.retries, administration.settings(place.retries), kept)
    group = administration.group(place.group)
    others = {
        partition.topic
        for member in group.members
        for partition in (member.assignment.topic_partitions if member.assignment else ())
    } - {name, place.retries}
    if others:
        yield Problem(
            f"members of group {place.group!r} consume {', '.join(sorted(others))} too: each of them takes part in every "
            "rebalance of the others",
            "give each topic a group of its own",
            "consumer.group",
            Severity.WARNING,
        )


def _durability(administration: Administration, name: str, settings: object) -> Iterator[Problem]:
    found = dict(settings) if isinstance(settings, dict) else {}
    replicas = min((len(part.replicas) for part in administration.description(name).partitions), default=1)
    in_sync = int(found.get("min.insync.replicas", 1))
    if replicas > 1 and in_sync < 2:
        yield Problem(
            f"topic {name!r} has {replicas} replicas, but min.insync.replicas is {in_sync}: a message that only one broker "
            "has is confirmed, and lost with it",
            "set min.insync.replicas to 2 or more",
            "topic",
            Severity.WARNING,
        )
    if found.get("unclean.leader.election.enable") == _ELIGIBLE:
        yield Problem(
            f"topic {name!r} may be led by a replica that was not in sync (unclean.leader.election.enable): confirmed "
            "messages are lost then",
            "set unclean.leader.election.enable to false",
            "topic",
            Severity.WARNING,
        )


def _retention(facts: ConsumerFacts, name: str, settings: object) -> Iterator[Problem]:
    found = dict(settings) if isinstance(settings, dict) else {}
    if "delete" not in found.get("cleanup.policy", "delete"):
        yield Problem(
            f"topic {name!r} is compacted: of several messages of a key that were not read yet, only the last may be left",
            "consume a topic with cleanup.policy=delete where every message counts",
            "topic",
            Severity.WARNING,
        )
        return
    milliseconds = int(found.get("retention.ms", -1))
    if 0 <= milliseconds < facts.retry_horizon / timedelta(milliseconds=1):
        kept = format_duration(timedelta(milliseconds=milliseconds))
        yield Problem(
            f"topic {name!r} keeps messages for {kept}, shorter than the retries of consumer {facts.name!r} may take "
            f"({format_duration(facts.retry_horizon)}): what waits behind them may be removed unread",
            "make retention.ms of the topic longer, or the retries shorter",
            "topic",
        )


def _retries(name: str, settings: Mapping[str, str], kept: timedelta) -> Iterator[Problem]:
    """Compare the topic of the retries with how long they are kept."""
    milliseconds, wanted = int(settings.get("retention.ms", -1)), kept // timedelta(milliseconds=1)
    advice = f"set its retention.ms to {wanted}, or change the broker's retry_retention"
    if "delete" not in settings.get("cleanup.policy", "delete"):
        text = f"the retries in {name!r} are compacted: of several retries of a key only the last may be left"
        yield Problem(text, "set its cleanup.policy to delete", "topic")
    elif milliseconds < 0:
        yield Problem(
            f"the retries in {name!r} are never removed: it grows with each of them",
            advice,
            "broker.retry_retention",
            Severity.WARNING,
        )
    elif milliseconds < wanted:
        found = format_duration(timedelta(milliseconds=milliseconds))
        yield Problem(
            f"{name!r} keeps retries for {found}, shorter than retry_retention ({format_duration(kept)}): "
            "those with long delays are removed before they are due",
            advice,
            "broker.retry_retention",
        )
