"""Defects of consumers that are subscribed to their routes alone."""

from defects.defect import Defect, Edit

RABBITMQ = "adapters/oncemq_adapters/rabbitmq"
SELECTION = "adapters/oncemq_adapters/route_selection.py"
SUITE = "tests/suites/rabbitmq/test_metadata.py"
REFUSED = "tests/unit/handler/test_subscribed_routes.py"

DEFECTS = (
    Defect(
        "routing-key-of-a-header",
        "The routing key is the one that the broker routed by, not one that a producer wrote into a header.",
        [
            Edit(
                f"{RABBITMQ}/metadata.py",
                "{**message.headers, ROUTING_KEY_HEADER: key}",
                "{ROUTING_KEY_HEADER: key, **message.headers}",
            )
        ],
        [f"{SUITE}::test_exactly_the_messages_of_the_routes_come"],
    ),
    Defect(
        "parked-routing-key-forgotten",
        "A dead letter of a message from the ledger has its routing key: its replay finds its route.",
        [Edit(f"{RABBITMQ}/publishing/copies.py", "    if place.topic.routing_keys:\n", "    if False:\n")],
        [f"{SUITE}::test_retries_and_replays_tell_the_key_of_the_original"],
    ),
    Defect(
        "routes-beside-tags",
        "Tags that a topic declares are not replaced in silence by those of the routes.",
        [Edit(SELECTION, "            if options.get(name)\n", "            if options.get(name) is name\n")],
        [f"{REFUSED}::test_what_cannot_be_selected_is_refused_at_its_line"],
    ),
    Defect(
        "old-binding-unseen",
        "A binding that no route needs any more is named by `check --connect`.",
        [Edit(f"{RABBITMQ}/topology/bindings.py", "sorted(found - set(wanted))", "sorted(found - found)")],
        ["tests/suites/rabbitmq/test_limits_of_policies.py::test_a_binding_that_no_route_needs_is_named"],
    ),
)
