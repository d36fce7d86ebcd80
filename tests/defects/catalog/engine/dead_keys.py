"""Defects of order after a dead letter: what follows it in its key waits for a person."""

from defects.defect import Defect, Edit

PARKING = "framework/oncemq/engine/parking/parking_strategies.py"
LETTERS = "framework/oncemq/ledger/messages/held_letters.py"
DEAD = "tests/unit/engine/parking/test_dead_keys.py"

DEFECTS = (
    Defect(
        "dead-letter-holds-nothing",
        "A dead letter whose consumer has `on_dead: hold_key` lies in the ledger, where it holds its key.",
        [
            Edit(
                "framework/oncemq/engine/parking/instance_messages.py",
                "if plan.hold_dead is None or parked is None:",
                "if parked is not None:",
            )
        ],
        [
            f"{DEAD}::test_later_messages_wait_behind_a_dead_letter_and_run_behind_it_once_it_is_replayed[sqlite]"
        ],
    ),
    Defect(
        "dead-letter-passed-elsewhere",
        "A later message of a held key waits, whichever process has it.",
        [
            Edit(
                PARKING,
                "        return parked(why, Place(held=True, limit=None))\n",
                "        return PROCEED\n",
            )
        ],
        [f"{DEAD}::test_another_process_sees_that_the_key_is_held[sqlite]"],
    ),
    Defect(
        "refusal-passed-in-its-unit",
        "Nothing of a key is applied in the unit in which a message of it becomes a dead letter, and behind that message.",
        [Edit(PARKING, "if died is not None and died < note.place[item.delivery]:", "if False:")],
        [f"{DEAD}::test_what_follows_a_refusal_in_the_same_unit_waits[sqlite]"],
    ),
    Defect(
        "released-before-the-replayed",
        "A replayed dead letter keeps its place: the messages behind it wait until it is applied.",
        [
            Edit(
                LETTERS,
                'values(reason="replayed", **values)',
                'values(reason="replayed", held=False, **values)',
            )
        ],
        [
            f"{DEAD}::test_later_messages_wait_behind_a_dead_letter_and_run_behind_it_once_it_is_replayed[sqlite]"
        ],
    ),
    Defect(
        "next-dead-letter-released",
        "The messages that follow an applied one end at the next dead letter of the key.",
        [
            Edit(
                "framework/oncemq/ledger/messages/parking.py",
                "if until_dead and due_at == DEAD:",
                "if until_dead is None:",
            )
        ],
        [f"{DEAD}::test_above_the_limit_messages_are_dead_letters_at_their_places[sqlite]"],
    ),
    Defect(
        "purge-holds-on",
        "A purged dead letter lets the messages behind it go.",
        [Edit(LETTERS, "    if was_first:\n", "    if False:\n")],
        [f"{DEAD}::test_a_purge_lets_the_others_go[sqlite]"],
    ),
    Defect(
        "gap-over-a-dead-letter",
        "A message that waits for its number does not pass a dead letter of its key when its time is over.",
        [
            Edit(
                PARKING,
                "            if not ticket.held:\n                return parked(why",
                "            if False:\n                return parked(why",
            )
        ],
        [f"{DEAD}::test_a_message_whose_own_wait_is_over_waits_on_while_its_key_is_held[sqlite]"],
    ),
)
