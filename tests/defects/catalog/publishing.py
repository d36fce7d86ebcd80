"""Defects of publishing: what is sent, and that it is part of the transaction it was stored in."""

from defects.defect import Defect, Edit

PUBLISHER = "tests/unit/run/test_app_publisher.py"

DEFECTS = (
    Defect(
        "rolled-back-number-is-sent",
        "A message that was rolled back is not sent in the place of the row that has got its number.",
        [
            Edit(
                "framework/oncemq/ledger/outbox_order.py",
                "if still.get(one.id) == one.message.message_id",
                "if one.id in still",
            )
        ],
        ["tests/unit/ledger/test_outbox.py::test_a_rolled_back_number_is_not_taken_for_the_next_row"],
    ),
    Defect(
        "stored-beside-the-transaction",
        "A message published with a session is part of that session's transaction.",
        [
            Edit(
                "framework/oncemq/run/caller_outbox.py",
                "            _note(session, relay, relay.add(connection, self._scope, messages))",
                "            with connection.engine.begin() as connection:\n"
                "                relay.add(connection, self._scope, messages)",
            )
        ],
        [f"{PUBLISHER}::test_a_rolled_back_transaction_sends_nothing[postgresql]"],
    ),
    Defect(
        "any-database-will-do",
        "A session on a database from which no worker sends is refused.",
        [
            Edit(
                "framework/oncemq/run/caller_outbox.py",
                "            if found is None:\n                raise Unpublishable(\n"
                '                    "the session is on another database',
                "            found = found or next(iter(self._relays.values()))\n            if found is None:\n"
                '                raise Unpublishable(\n                    "the session is on another database',
            )
        ],
        [f"{PUBLISHER}::test_another_database_is_refused[sqlite]"],
    ),
)
