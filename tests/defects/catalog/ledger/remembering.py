"""Defects of the strategies and the ledger: what is known of messages that took effect."""

from defects.defect import Defect, Edit

RECORDS = "strategies/oncemq_strategies/common/processed_records.py"
IN_REDIS = "strategies/oncemq_strategies/unique_key/seen_in_redis.py"
SEEN_IN_REDIS = "tests/unit/strategies/unique_key/test_also_seen_in_redis.py"
SQLITE = "tests/suites/strategies/test_sqlite.py::TestStrategiesSQLite"
MARIADB = "tests/suites/strategies/test_mariadb.py::TestStrategiesMariaDB"

FORGETTING = "framework/oncemq/operate/forgetting.py"
FORGET = "tests/unit/cli/commands/test_forget.py"

LOCK = "strategies/oncemq_strategies/optimistic_lock"
NUMBERS = "tests/unit/strategies/optimistic_lock/test_versions_move.py"
MOVING = "tests/unit/strategies/state_machine/test_states_move.py"

DEFECTS = (
    Defect(
        "forgotten-while-worked-on",
        "What is being worked on is not forgotten: its end would be recorded after it.",
        [
            Edit(
                FORGETTING,
                "            for record in forgetting.unfinished(records):\n                raise",
                "            for record in ():\n                raise",
            )
        ],
        [f"{FORGET}::test_a_claim_begun_after_the_preview_is_refused"],
    ),
    Defect(
        "forgotten-while-the-key-moves",
        "What a key has reached is forgotten only as it was shown.",
        [Edit(FORGETTING, "if places != self._seen.get(engine, []):", "if False:")],
        [f"{FORGET}::test_a_number_that_moves_after_the_preview_is_refused"],
    ),
    Defect(
        "forgotten-under-a-running-cache",
        "A cache that a running process fills again keeps its messages from being forgotten.",
        [Edit(FORGETTING, "        if not alive:\n", "        if True:\n")],
        [f"{FORGET}::test_caches_of_a_running_app_are_refused[single]"],
    ),
    Defect(
        "forgotten-after-the-preview",
        "What is applied after the preview is not removed.",
        [Edit(FORGETTING, "until=choice.until or plan.clock.now()", "until=choice.until")],
        [f"{FORGET}::test_what_is_applied_after_the_preview_stays"],
    ),
    Defect(
        "part-not-undone",
        "What is undone for one failing message leaves nothing of its neighbours behind.",
        [
            Edit(
                "framework/oncemq/engine/transaction/savepoint_batches.py",
                "    return savepoint.undo() and ",
                "    savepoint.release()\n    return ",
            )
        ],
        [
            "tests/unit/engine/transaction/test_savepoints.py::test_only_the_culprits_part_runs_again[sqlite-raise]"
        ],
    ),
    Defect(
        "dedup-in-another-transaction",
        "The dedup record and the business effect are in the same transaction.",
        [
            Edit(
                RECORDS,
                "        notes = _Notes(bulk.insert_new(run.connection, run.consumer, rows, self._clock.now()))\n",
                "        with run.connection.engine.begin() as apart:\n"
                "            notes = _Notes(bulk.insert_new(apart, run.consumer, rows, self._clock.now()))\n",
            )
        ],
        [
            "tests/unit/engine/transaction/test_dooming_errors.py::test_a_failed_message_leaves_no_dedup_row[postgresql-whole]"
        ],
    ),
    Defect(
        "dedup-row-kept-for-retry",
        "A message that is not final leaves no dedup row, else its retry would be a duplicate.",
        [Edit(RECORDS, "if len(notes.done) < len(notes.new):", "if False:")],
        [
            "tests/unit/engine/transaction/test_commit_order.py::test_successors_wait_behind_a_dropped_item[sqlite-whole]",
            f"{SQLITE}::test_a_failed_message_leaves_nothing_behind",
        ],
    ),
    Defect(
        "copies-in-one-unit-run-twice",
        "Two copies in one unit have one effect.",
        [
            Edit(
                RECORDS,
                "            notes.done[identity] = item\n",
                '            notes.done[identity + "!"] = item\n',
            )
        ],
        [
            "tests/unit/engine/transaction/test_rescue.py::test_copies_in_one_unit_are_one_effect[sqlite-whole]"
        ],
    ),
    Defect(
        "fingerprint-not-compared",
        "The same identity with other content is a conflict, not a duplicate.",
        [Edit(RECORDS, "print_ != self._fingerprint(item)", "False")],
        [f"{SQLITE}::test_a_conflict_is_not_a_duplicate"],
    ),
    Defect(
        "rivals-rows-taken-for-ours",
        "On MariaDB a row is new only if it carries the token of this very insert.",
        [
            Edit(
                "framework/oncemq/ledger/sql/bulk_mysql.py",
                "return [key for key, token in returned if token == owner]",
                "return [key for key, token in returned]",
            )
        ],
        ["tests/unit/ledger/sql/test_bulk.py::test_only_new_rows_are_returned[mariadb-native]"],
    ),
    Defect(
        "keys-folded-by-collation",
        "Keys are compared byte by byte, on MariaDB too.",
        [
            Edit(
                "framework/oncemq/ledger/sql/column_types.py",
                "                mysql.VARBINARY(self.size)\n",
                "                mysql.VARCHAR(min(self.size, 255))\n",
            ),
        ],
        [f"{MARIADB}::test_keys_are_compared_byte_by_byte"],
    ),
    Defect(
        "purge-without-bound",
        "Old rows are deleted in small batches, so that no unit waits long.",
        [
            Edit(
                "framework/oncemq/ledger/purge.py",
                ".select_from(aged.table).where(old).order_by(aged.table.c[aged.moment]).limit(limit)",
                ".select_from(aged.table).where(old).order_by(aged.table.c[aged.moment])",
            )
        ],
        ["tests/unit/ledger/test_purge.py::test_a_batch_is_bounded"],
    ),
    Defect(
        "purge-forgets-whose",
        "Purging a consumer's rows leaves those of others.",
        [
            Edit(
                "framework/oncemq/ledger/purge.py",
                "return rows if scope is None else",
                "return rows if True else",
            )
        ],
        ["tests/unit/ledger/test_purge.py::test_only_old_rows_of_the_scope_go"],
    ),
    Defect(
        "purge-falls-behind",
        "A purge rests less when more comes than it deletes in a tenth of the time.",
        [Edit("framework/oncemq/upkeep/pace.py", "if self._gone < _ENOUGH * came:", "if False:")],
        ["tests/unit/upkeep/test_pace.py::test_what_is_old_never_piles_up"],
    ),
    Defect(
        "gap-not-reported",
        "What waits too long for a state or a version is said aloud.",
        [
            Edit(
                "strategies/oncemq_strategies/common/gap_policy.py",
                'if self.on_gap != "alert" or not late:',
                "if True:",
            )
        ],
        [
            "tests/unit/strategies/common/test_gap_policy.py::test_a_wait_without_success_is_logged[sqlite-state_machine]"
        ],
    ),
    Defect(
        "missing-row-not-locked",
        "A row that does not exist yet is protected by a mutex before a state is written.",
        [
            Edit(
                "framework/oncemq/ledger/records/row_mutexes.py",
                "    if not keys:\n",
                "    if True:\n",
            )
        ],
        [
            "tests/unit/strategies/state_machine/test_strategy.py::test_a_missing_row_is_created_once[postgresql]"
        ],
    ),
    Defect(
        "late-state-applied",
        "A state that lies behind is stale and never applied.",
        [
            Edit(
                "strategies/oncemq_strategies/state_machine/strategy.py",
                "if step is Step.NEXT or (step",
                "if step in (Step.NEXT, Step.LATE) or (step",
            )
        ],
        [f"{SQLITE}::test_a_late_message_is_stale"],
    ),
    Defect(
        "short-retention-accepted",
        "Records must be kept for at least as long as a message can come back.",
        [
            Edit(
                "framework/oncemq/config/build/consumer_rules.py",
                "if facts.keep < facts.retry_horizon:",
                "if False:",
            )
        ],
        ["tests/unit/strategies/common/test_options.py::test_short_retention_is_reported_once"],
    ),
    Defect(
        "key-as-identity-before-states",
        "Without a version the key alone cannot be the identity where order matters.",
        [
            Edit(
                "strategies/oncemq_strategies/common/identity_checks.py",
                "    if ordering and (",
                "    if False and (",
            )
        ],
        [
            "tests/unit/strategies/common/test_options.py::test_identity_equal_to_key_is_refused_where_order_matters"
        ],
    ),
    Defect(
        "seen-elsewhere-runs-again",
        "What another deduplicator has applied is a duplicate.",
        [
            Edit(
                "strategies/oncemq_strategies/common/processed_records.py",
                "if identity in notes.elsewhere:",
                "if identity in notes.there:",
            )
        ],
        [
            "tests/unit/strategies/unique_key/test_also_seen.py::test_what_has_a_row_there_is_a_duplicate[sqlite]"
        ],
    ),
    Defect(
        "seen-elsewhere-under-another-name",
        "A row of another spelling is another message's.",
        [
            Edit(
                "strategies/oncemq_strategies/unique_key/also_seen.py",
                "if values not in found.respelled",
                "if values",
            )
        ],
        [
            "tests/unit/strategies/unique_key/test_also_seen.py::test_another_spelling_is_another_message[mariadb-OLD]"
        ],
    ),
    Defect(
        "unseen-while-redis-is-away",
        "An outage of Redis is no answer that a message was not applied elsewhere.",
        [
            Edit(
                IN_REDIS,
                "            if isinstance(answer, RedisUnavailable):\n                raise answer\n",
                "            if isinstance(answer, RedisUnavailable):\n                return\n",
            )
        ],
        [f"{SEEN_IN_REDIS}::test_while_redis_is_away_no_message_runs"],
    ),
    Defect(
        "unfinished-elsewhere-is-a-duplicate",
        "A key of a message that another deduplicator still works on makes no duplicate.",
        [Edit(IN_REDIS, "answer is not None and _bytes(answer) in self._values", "answer is not None")],
        [f"{SEEN_IN_REDIS}::test_what_is_marked_there_is_a_duplicate[single]"],
    ),
    Defect(
        "unknown-elsewhere-leaves-a-record",
        "A message that cannot be looked up elsewhere leaves no record, else its retry would be a duplicate.",
        [Edit(RECORDS, "in self.elsewhere.items() if verdict.final)", "in self.elsewhere.items())")],
        [f"{SEEN_IN_REDIS}::test_a_key_of_another_type_stops_its_message_alone[single]"],
    ),
    Defect(
        "states-left-in-the-ledger",
        "An app does not start while the ledger has states that are read elsewhere.",
        [
            Edit(
                "framework/oncemq/engine/group_ownership.py",
                "if _asked(plan, engine, found.left, False):",
                "if not found.what:",
            )
        ],
        [f"{MOVING}::test_the_app_does_not_start_while_the_ledger_has_states"],
    ),
    Defect(
        "numbers-left-in-the-ledger",
        "An app does not start while the ledger has numbers of a sequence that are read elsewhere.",
        [Edit(f"{LOCK}/strategy.py", "return self._versions.moves(int(self._names_current))", "return None")],
        [f"{NUMBERS}::test_entries_go_on_where_the_sequence_was"],
    ),
    Defect(
        "number-of-the-version-before",
        "A row's version after the move is the one that its last message left.",
        [Edit(f"{LOCK}/versions_move.py", "return int(text) + self._ahead", "return int(text)")],
        [f"{NUMBERS}::test_the_version_is_that_of_the_row_after_its_last_message"],
    ),
    Defect(
        "early-messages-left-asleep",
        "A message that waits for a number is looked at after the numbers were moved.",
        [Edit(f"{LOCK}/versions_move.py", "due_at=server_time(connection)", "due_at=parking.TABLE.c.due_at")],
        [f"{NUMBERS}::test_a_message_that_waits_is_looked_at_after_the_move"],
    ),
    Defect(
        "numbers-of-another-strategy-moved",
        "What another strategy of the consumer still reads is not moved.",
        [
            Edit(
                "framework/oncemq/engine/group_ownership.py",
                "return any(found.ledger.name == table.name for each in others for table in each.tables(MetaData()))",
                "return bool(None and others)",
            )
        ],
        [f"{NUMBERS}::test_beside_a_sequence_nothing_is_left_over"],
    ),
    Defect(
        "changed-state-deleted",
        "The ledger's states are deleted when each of them is where it belongs.",
        [
            Edit(
                "framework/oncemq/operate/moving.py",
                "if count.obstacles or count.written or count.inserted:",
                "if count.obstacles:",
            )
        ],
        [f"{MOVING}::test_a_state_that_changed_after_it_was_copied_is_not_deleted"],
    ),
    Defect(
        "moved-beside-the-app",
        "Nothing moves while a process of the app reads the ledger.",
        [Edit("framework/oncemq/operate/moving.py", "    if running:\n", "    if not plan.consumers:\n")],
        [f"{MOVING}::test_nothing_moves_while_the_app_runs"],
    ),
    Defect(
        "moved-in-part",
        "Nothing is written while it is not clear what becomes of a row.",
        [
            Edit(
                "framework/oncemq/cli/commands/tables.py",
                "if any(count.obstacles for _, count in counts):",
                "if not counts:",
            )
        ],
        [f"{MOVING}::test_a_state_that_the_column_cannot_hold_is_named"],
    ),
)
