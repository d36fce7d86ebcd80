"""Routes with `otherwise: unsubscribed` on a real broker: it delivers the messages of the routes, and no others."""

from oncemq import App
from oncemq.message.envelope import OutgoingMessage
from oncemq.testing.adapter_suite.bench import Bench, bodies

TAGS = ("order.paid", "order.sent")


def assert_only_routed_messages_arrive(bench: Bench, url: str) -> None:
    """Have a consumer subscribe as the routes of an app do on the broker of this URL, and publish also what has no route."""
    app = App("shop", brokers={"main": url}, database="sqlite://")
    app.topic("orders", key="keys[0]", strategies=["unique_key"])
    routes = app.routes(topic="orders", name="c", by="headers.tags", otherwise="unsubscribed")
    for tag in TAGS:
        routes.route(tag)(lambda order: None)
    wanted = app.plan().consumers[0].subscription.options
    topic = bench.topic()
    topic = topic._replace(options={**topic.options, "tags": wanted["tags"]})
    member = bench.open(bench.subscription(topic))
    bench.publish(
        topic, *[OutgoingMessage(tag.encode(), {"tags": tag}) for tag in ("order.unknown", *TAGS, "order")]
    )
    assert sorted(bodies(bench.receive(member, 2))) == [tag.encode() for tag in TAGS]
    bench.nothing_more(member, 2)
