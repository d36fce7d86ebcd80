"""Defects of recordings and rehearsals: what may not leave the app, what may not be touched, and what must be found."""

from defects.defect import Defect, Edit

RECORDER = "framework/oncemq/engine/recording/recorder.py"
LINES = "framework/oncemq/engine/recording/lines.py"
REHEARSAL = "framework/oncemq/rehearsal"
RECORDING = "tests/unit/engine/recording/test_recorder.py"
REHEARSING = "tests/unit/rehearsal/test_rehearse.py"

DEFECTS = (
    Defect(
        "masked-value-recorded",
        "A masked value never reaches the ledger.",
        [Edit(LINES, "        return replacement(value, salt)\n", "        return value\n")],
        [f"{RECORDING}::test_masks_replace_values_and_keep_equality[sqlite]"],
    ),
    Defect(
        "recording-outlives-its-command",
        "Workers do not record for a command that died.",
        [
            Edit(
                "framework/oncemq/ledger/coordination/recordings.py",
                " or seen_at <= now - SILENT_AFTER)",
                ")",
            )
        ],
        [f"{RECORDING}::test_a_command_that_died_leaves_nothing_behind[sqlite]"],
    ),
    Defect(
        "recording-without-a-bound",
        "A process keeps a bounded number of notes for the ledger.",
        [Edit(RECORDER, "len(self.notes) + len(notes) > MOST_NOTES", "False")],
        [f"{RECORDING}::test_what_has_no_room_is_counted[sqlite]"],
    ),
    Defect(
        "recorded-notes-lost-with-the-database",
        "Notes that could not be stored are kept.",
        [Edit(RECORDER, "            running.back(part + rest, lost)\n", "")],
        [f"{RECORDING}::test_a_database_that_is_away_loses_no_notes[sqlite]"],
    ),
    Defect(
        "rehearsal-imports-the-handler",
        "A rehearsal imports no module of the user's.",
        [Edit(f"{REHEARSAL}/scratch_app.py", '{"handler": nothing, "routes"', '{"routes"')],
        [f"{REHEARSING}::test_the_same_configuration_changes_nothing"],
    ),
    Defect(
        "rehearsal-on-the-apps-database",
        "A rehearsal writes into its own database.",
        [
            Edit(
                f"{REHEARSAL}/run.py",
                '["sqlite://"] if database is None else [database]',
                "whole_urls(new.declared.database) if database is None else [database]",
            )
        ],
        [f"{REHEARSING}::test_the_same_configuration_changes_nothing"],
    ),
    Defect(
        "rehearsal-opens-the-store",
        "A rehearsal opens no store of large bodies.",
        [
            Edit(
                f"{REHEARSAL}/scratch_app.py",
                ', "compatibility": None, "claim_check": None}',
                ', "compatibility": None}',
            )
        ],
        [f"{REHEARSING}::test_a_store_of_bodies_generations_and_recycling_are_left_alone"],
    ),
    Defect(
        "other-identity-said-to-protect",
        "Records of another identity do not protect.",
        [
            Edit(
                f"{REHEARSAL}/protection.py",
                "        if before.identity == now.identity:\n",
                "        if before:\n",
            )
        ],
        [f"{REHEARSING}::test_another_identity_finds_no_record"],
    ),
    Defect(
        "rehearsed-from-nothing",
        "What was applied before the recording began is a duplicate in the rehearsal.",
        [Edit(f"{REHEARSAL}/scratch_rows.py", "    if protection.identities:\n", "    if False:\n")],
        [f"{REHEARSING}::test_the_same_configuration_changes_nothing"],
    ),
)
