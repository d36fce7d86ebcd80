"""Checks that RocketMQ's brokers have what a consumer needs; each finding one line that says what to do."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import timedelta

from oncemq.common.durations import format_duration
from oncemq.common.problems import Problem, Severity
from oncemq.contracts.checks import ConsumerFacts
from oncemq_adapters.near_names import nearest
from oncemq_adapters.rocketmq.errors import REFUSALS
from oncemq_adapters.rocketmq.names import TopicOptions
from oncemq_adapters.rocketmq.remoting.admin import topics_and_groups as administration
from oncemq_adapters.rocketmq.remoting.admin.account_rights import consuming_problems, publishing_problems
from oncemq_adapters.rocketmq.remoting.admin.broker_settings import (
    Inventory,
    Settings,
    batches_in,
    take_stock,
)
from oncemq_adapters.rocketmq.remoting.admin.request_mode import pops, said_of, to_pull
from oncemq_adapters.rocketmq.remoting.operations import Operations
from oncemq_adapters.rocketmq_client import codes
from oncemq_adapters.rocketmq_client.errors import Denied
from oncemq_adapters.rocketmq_client.producer import DELAY_LEVELS

ORDERED_TYPES = ("FIFO", "MIXED", "")
_LONGEST_LEVEL = timedelta(seconds=DELAY_LEVELS[-1])


def examine(
    desk: Operations,
    facts: ConsumerFacts,
    topic: TopicOptions,
    group: str,
    *,
    makes_groups: bool,
    unwraps: bool = True,
) -> Iterator[Problem]:
    """Yield what the brokers lack, or what differs from the consumer's needs.

    Args:
        desk: connected.
        facts: about the consumer.
        topic: what is declared about its topic.
        group: by its real name.
        makes_groups: a group that is missing is made at the start, on any broker.
        unwraps: the driver takes batches apart.
    """
    names, missing = whereabouts(desk, topic)
    yield from missing
    if desk.account:
        connections = {name: desk.brokers.get(name) for name in names}
        yield from consuming_problems(connections, desk.account, topic, group)
    stock = take_stock(desk.brokers, names, topic.name, group)
    yield from message_types(stock, topic, Severity.WARNING)
    yield from batch_queues(stock, topic, unwraps=unwraps)
    yield from _filters(desk, names, topic, group)
    if not (makes_groups or topic.create):
        yield from _groups_not_created(stock, topic, group)
    yield from group_switches(stock, group)
    if not facts.instance:
        yield from _pop(desk, names, topic, group)
    yield from _levels(stock, facts)
    yield from limits(stock, facts)


def examine_publishing(desk: Operations, topic: TopicOptions) -> Iterator[Problem]:
    """Yield what keeps the app from publishing to a topic: it is missing and not created, or the account may not."""
    route = administration.route_of(desk.routes, topic)
    if route is None or (topic.create is None and topic.name not in desk.routes.topics()):
        yield Problem(str(administration.missing(topic)))
    elif topic.name in desk.routes.topics() and desk.account:
        names = sorted({name for name, _ in route.writable})
        connections = {name: desk.brokers.get(name) for name in names}
        yield from publishing_problems(connections, desk.account, topic)


def examine_trace(desk: Operations, trace: str) -> Iterator[Problem]:
    """Yield a warning where the topic of the message trace is missing; an empty name is none."""
    if not trace:
        return
    try:
        desk.routes.ask(trace)
    except Denied as denied:
        if denied.code != codes.NO_TOPIC:
            raise
        yield Problem(
            f"topic {trace!r} of the message trace does not exist, so that nothing is traced",
            f"set traceTopicEnable=true at the brokers, or run `mqadmin updateTopic -c <cluster> -t {trace}`",
            "broker.trace",
            Severity.WARNING,
        )


def whereabouts(desk: Operations, topic: TopicOptions) -> tuple[Sequence[str], list[Problem]]:
    """Return which brokers a topic is on, or could be made on; and what is wrong with it."""
    route = administration.route_of(desk.routes, topic)
    topics = desk.routes.topics()
    meant = None if topic.name in topics else nearest(topic.name, topics.__contains__)
    if route is None:
        missing = str(administration.missing(topic)) + (f"; did you mean {meant!r}?" if meant else "")
        return sorted(desk.routes.brokers()), [Problem(missing, where="topic.topic_name")]
    if meant:
        text = (
            f"topic {topic.name!r} of RocketMQ does not exist and is made by the start, but {meant!r} exists"
        )
        advice = f"write topic_name: {meant} if that one is meant"
        return sorted({name for name, _ in route.readable}), [
            Problem(text, advice, "topic.topic_name", Severity.WARNING)
        ]
    if not route.readable:
        text = f"topic {topic.name!r} of RocketMQ has no queue that can be read"
        advice = f"run `mqadmin updateTopicPerm -c <cluster> -t {topic.name} -p 6`"
        return sorted(desk.routes.brokers()), [Problem(text, advice, "topic.topic_name")]
    return sorted({name for name, _ in route.readable}), []


def _filters(desk: Operations, names: Sequence[str], topic: TopicOptions, group: str) -> Iterator[Problem]:
    """Yield why a broker cannot filter as declared."""
    for name in names if topic.filter else ():
        try:
            administration.insist_on_filter(desk.brokers.get(name), group, topic)
        except REFUSALS as refused:
            yield Problem(str(refused), where="topic.filter")


def _pop(desk: Operations, names: Sequence[str], topic: TopicOptions, group: str) -> Iterator[Problem]:
    """Yield where brokers are set to hand the topic out to the group, which pulls."""
    brokers = [name for name in names if pops(desk.brokers.get(name), topic.name, group)]
    if trouble := said_of(brokers, topic.name, group):
        yield Problem(trouble, to_pull(topic.name, group), "group")


def message_types(stock: Sequence[Inventory], topic: TopicOptions, severity: Severity) -> Iterator[Problem]:
    """Yield where the topic is of a type that does not go with the order that is declared."""
    unordered = _those(stock, lambda row: row.message_type not in ORDERED_TYPES)
    if topic.fifo and unordered:
        types = ", ".join(sorted({row.message_type for row in stock if row.broker in unordered}))
        yield Problem(
            f"fifo is declared, but topic {topic.name!r} is of type {types} on {_listed(unordered)}: nothing can publish "
            "in order to it through a proxy",
            f"run `mqadmin updateTopic -c <cluster> -t {topic.name} -a +message.type=FIFO`, or leave out fifo",
            "topic.fifo",
            severity,
        )
    ordered = _those(stock, lambda row: row.message_type == "FIFO")
    if not topic.fifo and ordered:
        yield Problem(
            f"topic {topic.name!r} is of type FIFO on {_listed(ordered)}, but without fifo here the retry of a message "
            "lets later ones pass",
            "write fifo: true at the topic; nothing, if a strategy keeps the order of each key",
            "topic.fifo",
            Severity.WARNING,
        )


def batch_queues(
    stock: Sequence[Inventory], topic: TopicOptions, *, unwraps: bool = False
) -> Iterator[Problem]:
    """Yield that messages come in batches, where the driver, or the order that is declared, takes them one by one."""
    if not any(row.batches for row in stock):
        return
    if not unwraps:
        yield Problem(batches_in(topic.name), "consume it with rocketmq://, which can", "topic.topic_name")
    elif topic.fifo:
        yield Problem(
            f"topic {topic.name!r} keeps messages in batches (queue.type=BatchCQ), which come at once",
            "leave out fifo; a strategy can keep the order of each key",
            "topic.fifo",
        )


def group_switches(stock: Sequence[Inventory], group: str) -> Iterator[Problem]:
    """Yield where a group may not consume, or has nowhere to put its retries."""
    off = _those(stock, lambda row: row.group is not None and row.group.get("consumeEnable") is False)
    if off:
        yield Problem(
            f"group {group!r} is disabled on {_listed(off)}: its members receive nothing",
            f"run `mqadmin updateSubGroup -c <cluster> -g {group} -s true`",
            "group",
        )
    narrow = _those(stock, lambda row: row.group is not None and row.group.get("retryQueueNums") == 0)
    if narrow:
        yield Problem(
            f"group {group!r} has no queue for its retries on {_listed(narrow)}: failed messages cannot be redelivered",
            f"run `mqadmin updateSubGroup -c <cluster> -g {group} -q 1`, then "
            f"`mqadmin updateTopic -c <cluster> -t '%RETRY%{group}' -r 1 -w 1`",
            "group",
        )


def limits(stock: Sequence[Inventory], facts: ConsumerFacts) -> Iterator[Problem]:
    """Yield where messages are deleted, or come back, before the retry policy wants them."""
    unknown = _those(stock, lambda row: row.settings is None)
    if unknown:
        yield Problem(
            f"the account may not read the configuration of {_listed(unknown)}: how long messages are kept and held back "
            "there is not known",
            "run `oncemq check --connect` once with an account that may",
            "broker.username",
            Severity.WARNING,
        )
    for broker, settings in _configured(stock):
        if settings.kept is not None and facts.retry_horizon > settings.kept:
            yield Problem(
                f"retries can take {format_duration(facts.retry_horizon)}, but {broker} deletes messages after "
                f"{format_duration(settings.kept)}",
                "raise fileReservedTime in its broker.conf, or shorten the backoff",
                "retry",
            )
        if settings.timer and facts.longest_pause > settings.longest_delay:
            yield Problem(
                f"a pause can be {format_duration(facts.longest_pause)} long, but {broker} holds messages back for "
                f"{format_duration(settings.longest_delay)} at most",
                "lower the backoff's max",
                "retry",
            )


def without_timer(stock: Sequence[Inventory]) -> Sequence[str]:
    """Return the brokers that have no timer wheel."""
    return [broker for broker, settings in _configured(stock) if settings.timer is False]


def _groups_not_created(stock: Sequence[Inventory], topic: TopicOptions, group: str) -> Iterator[Problem]:
    missing = _those(
        stock,
        lambda row: row.group is None and row.settings is not None and row.settings.makes_groups is False,
    )
    if missing:
        yield Problem(str(administration.missing_group(topic, group, _listed(missing))), where="group")


def _levels(stock: Sequence[Inventory], facts: ConsumerFacts) -> Iterator[Problem]:
    brokers = without_timer(stock)
    if not brokers or facts.attempts < 2:
        return
    too_long = facts.longest_pause > _LONGEST_LEVEL
    yield Problem(
        f"no timer wheel on {_listed(brokers)}: pauses are rounded up to its delay levels (1s, 5s, 10s, 30s, 1m …), two "
        f"hours at most{f', but one can be {format_duration(facts.longest_pause)} long' if too_long else ''}",
        "set timerWheelEnable=true in its broker.conf (5.x)"
        + (", or lower the backoff's max to 1h" if too_long else "; nothing, if that is exact enough"),
        "retry",
        Severity.ERROR if too_long else Severity.WARNING,
    )


def _configured(stock: Sequence[Inventory]) -> Iterator[tuple[str, Settings]]:
    for row in stock:
        if row.settings is not None:
            yield row.broker, row.settings


def _those(stock: Sequence[Inventory], which: Callable[[Inventory], bool]) -> Sequence[str]:
    return [row.broker for row in stock if which(row)]


def _listed(brokers: Iterable[str]) -> str:
    return ", ".join(brokers)
