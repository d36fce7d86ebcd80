"""`otherwise: unsubscribed`: the broker is asked for the messages of the routes alone."""

import re
from pathlib import Path

import pytest

from oncemq import App, ConfigError
from oncemq.config import load
from oncemq.config.build.plan import LoadedApp
from oncemq.testing import Status, TestApp
from support.declared import HANDLERS, fresh_module

TEXT = """\
app: shop
brokers: {{main: {{url: "{url}"}}}}
database: {{url: "sqlite://"}}
topics:
  orders: {{key: body.id, strategies: [unique_key], identity: message_id{topic}}}
consumers:
  count:
    topic: orders
    routes:
      by: {by}
      order.paid: "MODULE:handle"
      {more}
      otherwise: unsubscribed
"""
TAGS, KEYS = "headers.tags", "headers.routing_key"
RABBIT, ROCKET = "amqp://host", "rocketmq://host"
MORE = 'order.sent: {handler: "MODULE:handle", retry: {attempts: 2}}'


def declared(folder: Path, url: str, by: str, topic: str = "", more: str = MORE) -> LoadedApp:
    """Return an app with these routes."""
    module = fresh_module()
    (folder / f"{module}.py").write_text(HANDLERS)
    file = folder / "app.yaml"
    file.write_text(TEXT.format(url=url, by=by, topic=topic, more=more).replace("MODULE", module))
    return load([file], environment={})


@pytest.mark.parametrize(
    ("url", "by", "option"),
    [
        (ROCKET, TAGS, "tags"),
        (RABBIT, KEYS, "routing_keys"),
    ],
)
def test_the_keys_of_the_routes_are_subscribed_to(tmp_path: Path, url: str, by: str, option: str) -> None:
    """And no others; publishing to the topic is as it was."""
    plan = declared(tmp_path, url, by).plan
    assert plan.consumers[0].subscription.options == {option: ["order.paid", "order.sent"]}
    assert plan.topics["orders"].options == {}


@pytest.mark.parametrize(
    ("url", "by", "topic", "more", "said"),
    [
        (ROCKET, TAGS, ", tags: [a]", "", "5: count: with otherwise: unsubscribed the tags of the routes are subscribed to"),
        (ROCKET, TAGS, ", filter: a > 1", "", "5: count: with otherwise: unsubscribed the tags of the routes"),
        (ROCKET, "body.type", "", "", "10: count: RocketMQ selects messages by their tag, not by body.type"),
        (ROCKET, TAGS, "", '"a b": "MODULE:handle"', "the route 'a b' cannot be a tag"),
        (RABBIT, KEYS, ", routing_key: a", "", "5: count: with otherwise: unsubscribed the group's queue is bound by the"),
        (RABBIT, KEYS, ", routing_keys: [a]", "", "the topic has routing_keys – leave routing_keys out"),
        (RABBIT, KEYS, ", partitions: 4", "", "is bound by the routing keys of the routes, but the topic has partitions"),
        (RABBIT, KEYS, ", queue: q", "", "is bound by the routing keys of the routes, but the topic has queue"),
        (RABBIT, KEYS, ", exchange_type: fanout", "", "an exchange of type fanout does not follow routing keys"),
        (RABBIT, KEYS, "", '"order.*": "MODULE:handle"', "the route 'order.*' is a pattern"),
        (RABBIT, TAGS, "", "", "10: count: RabbitMQ selects messages by their routing key, not by headers.tags"),
        ("embedded://", KEYS, "", "", "13: count: otherwise: unsubscribed has the broker deliver the messages of the routes"),
        ("kafka://host", KEYS, "", "", "13: count: otherwise: unsubscribed has the broker deliver the messages of the routes"),
    ],
)  # fmt: skip
def test_what_cannot_be_selected_is_refused_at_its_line(
    tmp_path: Path, url: str, by: str, topic: str, more: str, said: str
) -> None:
    """With what to write instead."""
    with pytest.raises(ConfigError) as caught:
        declared(tmp_path, url, by, topic, more)
    assert said in re.sub(r"(:\d+):\d+:", r"\1:", "\n".join(map(str, caught.value.problems)))


def test_a_message_that_comes_without_a_route_is_a_dead_letter() -> None:
    """Such as a retry from before a change of the routes: nothing is lost."""
    shop = App("shop", brokers={"main": ROCKET}, database="sqlite:///unused.db")
    shop.topic("orders", key="body.id", identity="message_id", strategies=["unique_key"])
    routes = shop.routes(topic="orders", name="events", by=TAGS, otherwise="unsubscribed")
    routes.route("order.paid")(lambda order: None)
    with TestApp(shop) as app:
        assert app.publish("orders", {"id": "1"}, headers={"tags": "order.paid"}).applied
        outcome = app.publish("orders", {"id": "1"}, headers={"tags": "order.lost"})
    assert (outcome.status, outcome.code) == (Status.DEAD_LETTER, "no-route")
