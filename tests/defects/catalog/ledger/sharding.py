"""Defects of sharded databases: what one shard that is away does to the keys of the others (rule 21)."""

from defects.defect import Defect, Edit

AWAY = "tests/scenarios/outages/test_shard_away.py"

DEFECTS = (
    Defect(
        "new-sqlite-file-refused",
        "Processes that open a new SQLite file at once all get it.",
        [
            Edit(
                "framework/oncemq/common/sqlite_files.py",
                'if "locked" not in str(error) or monotonic() > end:',
                "if error:",
            )
        ],
        ["tests/unit/ledger/database/test_new_sqlite_file.py::test_all_of_them_get_its_write_ahead_log"],
    ),
    Defect(
        "one-shard-pauses-all",
        "A shard that is away stops its own keys, and those of no other shard.",
        [
            Edit(
                "framework/oncemq/engine/workers/worker.py",
                "if shards is None or self._consumer.judge_unrun(",
                "if shards is not None or self._consumer.judge_unrun(",
            )
        ],
        [f"{AWAY}::test_the_keys_of_the_other_shard_go_on"],
    ),
    Defect(
        "one-shard-pauses-all-direct",
        "The same for handlers with effects outside the database.",
        [
            Edit(
                "framework/oncemq/engine/workers/async_worker.py",
                "if consumer.shards is None or not isinstance(",
                "if consumer.shards is not None or not isinstance(",
            )
        ],
        [f"{AWAY}::test_direct_handlers_of_the_other_shard_go_on[async def]"],
    ),
    Defect(
        "others-proved-by-another-shard",
        "What succeeds on one shard says nothing about an error on another.",
        [
            Edit(
                "framework/oncemq/engine/consumer_runtime.py",
                "self.consumer.lanes[shard]",
                "self.consumer.lanes[0]",
            )
        ],
        [f"{AWAY}::test_an_error_on_one_shard_is_not_disproved_by_another"],
    ),
    Defect(
        "backlog-of-a-shard-fills-the-window",
        "What waits for its shard for long leaves its place to messages of the others.",
        [
            Edit(
                "framework/oncemq/engine/consumer/consumer.py",
                "return delivery.source is None and not self.plan.hold_key",
                "return False",
            )
        ],
        [f"{AWAY}::test_what_waits_for_long_is_kept_by_the_broker"],
    ),
    Defect(
        "split-without-a-copy",
        "A row is deleted only where the shard that it belongs to has it.",
        [Edit("framework/oncemq/operate/splitting.py", "    if missing:\n", "    if not rows:\n")],
        ["tests/unit/cli/test_tables_split.py::test_a_row_that_its_shard_does_not_have_is_not_deleted"],
    ),
    Defect(
        "split-by-numbers-alone",
        "A row with the same number on another shard is not the same row.",
        [
            Edit(
                "framework/oncemq/operate/splitting.py",
                "return [*identity, *keys, *more]",
                "return [*identity, *more]",
            )
        ],
        ["tests/unit/cli/test_tables_split.py::test_a_row_with_the_same_number_is_not_the_same_row"],
    ),
    Defect(
        "published-on-both-shards",
        "Of copies of a published message one is left.",
        [
            Edit(
                "framework/oncemq/operate/splitting.py",
                "_copies(engines[:number], part, rows)",
                "_copies((), part, rows)",
            )
        ],
        ["tests/unit/cli/test_tables_split.py::test_a_published_message_stays_where_its_maker_was"],
    ),
    Defect(
        "copied-and-not-split",
        "A shard that was copied and not split is not served.",
        [
            Edit(
                "framework/oncemq/ledger/coordination/shards.py",
                "        if away is None:\n",
                "        if app:\n",
            )
        ],
        ["tests/unit/cli/test_tables_split.py::test_a_copy_that_was_not_split_is_told_from_a_new_database"],
    ),
    Defect(
        "split-of-another-app",
        "Only the app's own rows are divided.",
        [
            Edit(
                "framework/oncemq/operate/splitting.py",
                "    if part.ours is not None:\n",
                "    if part.key is None:\n",
            )
        ],
        ["tests/unit/cli/test_tables_split.py::test_each_shard_keeps_what_belongs_to_it"],
    ),
)
