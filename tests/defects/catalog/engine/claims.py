"""Defects of the claim check: bodies in a store, and references that strangers write."""

from defects.defect import Defect, Edit

CLAIMS = "framework/oncemq/message/claims"
APP = "tests/unit/engine/claims/test_in_an_app.py"
STORE = "tests/unit/message/claims/test_store.py"

DEFECTS = (
    Defect(
        "any-place-is-read",
        "A reference names a body below the store, and nothing else.",
        [Edit(f"{CLAIMS}/reference.py", "_NAME.fullmatch(name, 0) is None", "not name")],
        ["tests/unit/message/claims/test_reference.py::test_other_places_are_never_read"],
    ),
    Defect(
        "body-size-unbounded",
        "A body that is too large is not fetched.",
        [Edit(f"{CLAIMS}/reference.py", "not 0 < size <= most", "size < 1")],
        ["tests/unit/message/claims/test_reference.py::test_its_size_is_bounded"],
    ),
    Defect(
        "body-not-verified",
        "A body that was altered is no message.",
        [
            Edit(
                f"{CLAIMS}/claim_check.py",
                "if len(body) != reference.size or sha256(body).hexdigest() != reference.digest:",
                "if False:",
            )
        ],
        [f"{APP}::test_an_altered_body_is_a_dead_letter"],
    ),
    Defect(
        "store-away-is-body-gone",
        "A store that is away is waited for, though its files are not found.",
        [Edit(f"{CLAIMS}/store.py", "        elif self._seen:\n", "        elif False:\n")],
        [f"{STORE}::test_a_body_is_gone_only_where_the_store_is_there"],
    ),
    Defect(
        "half-a-body-is-seen",
        "A body is whole whenever it can be seen.",
        [Edit(f"{CLAIMS}/store.py", "        new.unlink(missing_ok=True)\n", "        new.replace(path)\n")],
        [f"{STORE}::test_a_file_is_whole_or_not_there"],
    ),
    Defect(
        "copies-hold-the-body",
        "Retries and dead letters refer to a body.",
        [
            Edit(
                f"{CLAIMS}/claim_check.py",
                'object.__setattr__(message, "claimed", self._claims.fetch(message))',
                'object.__setattr__(message, "claimed", self._claims.fetch(message)); object.__setattr__(message, "body", message.claimed)',
            )
        ],
        ["tests/scenarios/test_large_bodies.py::test_a_large_body_is_referred_to_by_every_copy[rabbitmq]"],
    ),
    Defect(
        "fetched-message-is-overtaken",
        "Messages behind one whose body is fetched wait for it.",
        [
            Edit(
                "framework/oncemq/engine/consumer/claim_scheduler.py",
                "            if not self._line and not any(map(_unread, deliveries)):\n                super().put(deliveries)\n                return\n            self._line.extend(deliveries)\n",
                "            super().put([each for each in deliveries if not _unread(each)])\n            self._line.extend(filter(_unread, deliveries))\n",
            )
        ],
        [f"{APP}::test_messages_keep_their_order_behind_one_that_is_fetched"],
    ),
    Defect(
        "publisher-charged-for-the-store",
        "A handler that publishes while the store is away is not charged.",
        [
            Edit(
                "framework/oncemq/engine/base/error_verdicts.py",
                "    if issubclass(kind, ClaimStoreUnavailable):\n",
                "    if False:\n",
            )
        ],
        [f"{APP}::test_a_handler_that_publishes_waits_for_the_store"],
    ),
    Defect(
        "waiting-bodies-purged",
        "Bodies of messages that wait in the ledger stay.",
        [
            Edit(
                "framework/oncemq/upkeep/claims.py",
                "now = min([self._claims.clock.now(), *map(self._oldest, self._engines)])",
                "now = self._claims.clock.now()",
            )
        ],
        ["tests/unit/upkeep/test_claims.py::test_bodies_of_messages_in_the_outbox_stay"],
    ),
)
