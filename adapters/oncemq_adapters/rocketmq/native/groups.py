"""Starting points of groups: librocketmq has no setting for them, so they are committed to the brokers before it joins."""

from dataclasses import replace

from oncemq_adapters.rocketmq.names import TopicOptions
from oncemq_adapters.rocketmq.remoting.admin.topics_and_groups import ensure_topic
from oncemq_adapters.rocketmq_client import codes
from oncemq_adapters.rocketmq_client.admin import begin_group, create_group
from oncemq_adapters.rocketmq_client.connections import Brokers, Routes
from oncemq_adapters.rocketmq_client.errors import Denied, MalformedFrame
from oncemq_adapters.rocketmq_client.names import retry_topic
from oncemq_adapters.rocketmq_client.protocol import Connection, loose_json


def register(routes: Routes, brokers: Brokers, topic: TopicOptions, group: str) -> None:
    """Commit where a group begins in each queue that it was never in.

    Raises:
        BrokerError: a broker did not take it.
    """
    # The library looks for it every ten seconds only; brokers would make it when a member joins.
    retries = retry_topic(group)
    ensure_topic(routes, brokers, replace(topic, name=retries, tags=frozenset(), create=True, queues=1))
    places = routes.ask(topic.name).readable
    begin_group(brokers, places, topic.name, group, topic.start, lambda broker: _make_group(broker, group))


def members(brokers: Brokers, broker: str, group: str) -> list[str]:
    """Return the ids of a group's members, as a broker knows them; none where it does not know the group."""
    try:
        _, body = brokers.get(broker).call(codes.CONSUMERS, {"consumerGroup": group})
    except Denied:
        return []
    try:
        return [str(member) for member in loose_json(body)["consumerIdList"]]
    except (KeyError, TypeError) as error:
        raise MalformedFrame(f"a list of members makes no sense: {error!r}") from error


def _make_group(connection: Connection, group: str) -> None:
    # Brokers before 5.x make one by themselves at the first commit.
    create_group(connection, group)
