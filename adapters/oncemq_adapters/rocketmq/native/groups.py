"""Where a group begins: librocketmq cannot be told, so the brokers are, before it joins."""

from dataclasses import replace

from oncemq_adapters.rocketmq.names import TopicOptions, retry_topic
from oncemq_adapters.rocketmq.remoting import codes
from oncemq_adapters.rocketmq.remoting.administration import ensure_topic, new_group
from oncemq_adapters.rocketmq.remoting.brokers import Brokers
from oncemq_adapters.rocketmq.remoting.connection import Connection
from oncemq_adapters.rocketmq.remoting.faults import Denied
from oncemq_adapters.rocketmq.remoting.frames import MalformedFrame, loose_json
from oncemq_adapters.rocketmq.remoting.offsets import commit_offset, committed_offset, first_offset
from oncemq_adapters.rocketmq.remoting.routes import Routes


def register(routes: Routes, brokers: Brokers, topic: TopicOptions, group: str) -> None:
    """Commit where a group begins in each queue that it was never in.

    Raises:
        BrokerError: a broker did not take it.
    """
    # The library looks for it every ten seconds only; brokers would make it when somebody joins.
    retries = retry_topic(group)
    ensure_topic(routes, brokers, replace(topic, name=retries, tags=frozenset(), create=True, queues=1))
    for name, number in routes.find(topic.name).readable:
        connection = brokers.get(name)
        if _committed(connection, group, topic.name, number) is not None:
            continue
        begin = first_offset(connection, topic.name, number, topic.start)
        try:
            commit_offset(connection, group, topic.name, number, begin)
        except Denied as denied:
            if denied.code != codes.NO_GROUP:
                raise
            # Brokers before 5.x make one by themselves at the first commit.
            connection.call(codes.UPDATE_GROUP, {}, new_group(group))
            commit_offset(connection, group, topic.name, number, begin)


def members(brokers: Brokers, broker: str, group: str) -> list[str]:
    """Return the ids of a group's members, as a broker knows them; none where it does not know the group."""
    try:
        _, body = brokers.get(broker).call(codes.CONSUMERS, {"consumerGroup": group})
    except Denied:
        return []
    try:
        return [str(one) for one in loose_json(body)["consumerIdList"]]
    except (KeyError, TypeError) as error:
        raise MalformedFrame(f"a list of members makes no sense: {error!r}") from error


def _committed(connection: Connection, group: str, topic: str, number: int) -> int | None:
    try:
        return committed_offset(connection, group, topic, number)
    except Denied as denied:
        if denied.code == codes.NO_GROUP:
            return None
        raise
