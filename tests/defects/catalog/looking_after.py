"""Defects of commands that look after an app: what they count, hold, move and say."""

from defects.defect import Defect, Edit

RABBIT_LETTERS = "adapters/oncemq_adapters/rabbitmq/publishing/dead_letters.py"
GROUPS = "tests/unit/cli/commands/test_groups.py"
RABBIT_SUITE = "tests/suites/rabbitmq/test_dead_letters.py"
JUDGE = "framework/oncemq/schemas/judge.py"
JUDGED = "tests/unit/schemas/test_judge.py"
DOCUMENT = "tests/unit/asyncapi/test_document.py"
FOLLOWING = "framework/oncemq/engine/ordered_pauses.py"
PAUSES = "tests/unit/engine/test_ordered_pauses.py"
STOPPING = "framework/oncemq/engine/stop_conditions.py"
STOPS = "tests/unit/engine/test_stop_conditions.py"

AUDITING = "framework/oncemq/operate/auditing.py"
AUDIT = "tests/unit/cli/test_audit.py"

DEFECTS = (
    Defect(
        "replay-noted-afterwards-only",
        "The audit trail has a replay before the broker is asked.",
        [
            Edit(
                AUDITING,
                "            numbers = audit.request(connection, [self._change(scope, key, target) for key in keys])",
                "            numbers = list(range(len(keys)))",
            )
        ],
        [f"{AUDIT}::test_a_request_is_stored_before_the_broker_is_asked"],
    ),
    Defect(
        "failed-replay-counts-as-done",
        "A replay that raised is not `done` in the audit trail.",
        [Edit(AUDITING, "        state = FAILED\n", "        state = DONE\n")],
        [f"{AUDIT}::test_a_replay_that_raises_is_no_done_one"],
    ),
    Defect(
        "audit-by-the-machines-clock",
        "The time of an operator's change is the database's.",
        [
            Edit(
                "framework/oncemq/ledger/records/audit.py",
                "        now = server_moment(connection.dialect)\n",
                "        now = changes[0].at\n",
            )
        ],
        [f"{AUDIT}::test_the_time_of_a_change_is_the_databases"],
    ),
    Defect(
        "changes-before-the-trail-is-there",
        "Without a table for its trace nothing is replayed.",
        [
            Edit(AUDITING, "            databases.prove(plan)\n", "            pass\n"),
            Edit("framework/oncemq/cli/commands/dead_letters.py", "        opened(plan)\n", "        pass\n"),
        ],
        [f"{AUDIT}::test_a_ledger_without_the_table_is_told_to_be_upgraded_before_anything_is_changed"],
    ),
    Defect(
        "schema-registered-twice",
        "A version of a schema that is registered in two places is refused.",
        [Edit("framework/oncemq/schemas/registry.py", "if version.version in known:", "if False:")],
        ["tests/unit/schemas/test_registry.py::test_a_version_is_registered_once"],
    ),
    Defect(
        "new-required-field-passes",
        "A version that requires what earlier bodies need not have is incompatible.",
        [
            Edit(
                JUDGE,
                'missing = set(reader.get("required", ())) - set(writer.get("required", ()))',
                "missing = set()",
            )
        ],
        [f"{JUDGED}::test_what_refuses_a_body_is_said_in_words[a required field more]"],
    ),
    Defect(
        "undeclared-fields-forgotten",
        "A field that earlier bodies may have without declaring it is incompatible with a type.",
        [Edit(JUDGE, "further = self._undeclared or not declared", "further = False")],
        [f"{JUDGED}::test_what_refuses_a_body_is_said_in_words[an optional field more in an open one]"],
    ),
    Defect(
        "listed-value-believed",
        "A listed value counts as accepted only if the other keywords accept it, too.",
        [Edit("framework/oncemq/schemas/values.py", "accepted = _accepts(reader, value)", "accepted = True")],
        [
            f"{JUDGED}::test_what_refuses_a_body_is_said_in_words[a listed value that another keyword refuses]",
            "tests/unit/schemas/test_soundness.py::test_a_body_of_the_writer_is_a_body_of_the_reader",
        ],
    ),
    Defect(
        "unjudged-change-passes",
        "A change that cannot be judged fails the check unless it is allowed to pass.",
        [
            Edit(
                "framework/oncemq/cli/commands/messages/schemas.py",
                "comparison.breaks or (bool(comparison.differences) and not pass_unjudged)",
                "comparison.breaks",
            )
        ],
        ["tests/unit/cli/messages/test_schemas.py::test_what_cannot_be_judged_fails_unless_it_may_pass"],
    ),
    Defect(
        "document-shows-secret-options",
        "What `oncemq asyncapi` writes masks options whose name says that they are secret.",
        [Edit("framework/oncemq/asyncapi/values.py", "MASK if is_secret_name(str(name)) else ", "")],
        [f"{DOCUMENT}::test_secrets_among_options_are_masked"],
    ),
    Defect(
        "document-shows-users",
        "What `oncemq asyncapi` writes of a broker without a description names no user.",
        [
            Edit(
                "framework/oncemq/asyncapi/brokers.py",
                'host = parts.netloc.rpartition("@")[2]',
                "host = parts.netloc",
            )
        ],
        [f"{DOCUMENT}::test_a_broker_that_is_not_described_has_its_url_without_a_user"],
    ),
    Defect(
        "doctor-prints-addresses",
        "What `oncemq doctor` prints of an app with errors names no host.",
        [Edit("framework/oncemq/cli/commands/doctor.py", "_ADDRESS.sub('://…', line)", "line")],
        ["tests/unit/cli/commands/test_doctor.py::test_an_app_with_errors_is_told_without_its_addresses"],
    ),
    Defect(
        "questions-of-pika-shown",
        "A start on RabbitMQ shows no warning of pika about a queue that is not there.",
        [
            Edit(
                "adapters/oncemq_adapters/rabbitmq/connection/link.py",
                "        channels.setLevel(logging.ERROR)",
                "        pass",
            )
        ],
        [
            "tests/unit/adapters/rabbitmq/connection/test_quiet_pika.py::test_a_start_shows_no_refused_questions"
        ],
    ),
    Defect(
        "questions-of-pika-shown-at-the-first-start",
        "It shows none either where the log is configured after the app was built.",
        [
            Edit(
                "adapters/oncemq_adapters/rabbitmq/adapter.py",
                "        # Again: the log may have been configured since the adapter was built.\n        quiet_pika()\n",
                "",
            )
        ],
        [
            "tests/unit/adapters/rabbitmq/connection/test_quiet_pika.py::test_the_log_may_be_configured_after_the_app_is_built"
        ],
    ),
    Defect(
        "odd-error-takes-its-line",
        "An exception whose attributes raise does not take the log line of its message with it.",
        [
            Edit(
                "framework/oncemq/observe/log_observer.py",
                "if error is not None and _can_be_shown(error) else",
                "if error is not None else",
            )
        ],
        ["tests/unit/observe/test_logs.py::test_an_error_that_cannot_be_shown_takes_no_line_along[json]"],
    ),
    Defect(
        "acknowledged-tag-given-back",
        "After the last dead letter is done, nothing is given back to RabbitMQ by an acknowledged tag.",
        [
            Edit(RABBIT_LETTERS, "if self._taken > self.removed:", "if self._taken:"),
            Edit(RABBIT_LETTERS, "basic_nack(0, multiple", "basic_nack(self._taken, multiple"),
        ],
        [f"{RABBIT_SUITE}::test_all_letters_are_done_with_a_true_count"],
    ),
    Defect(
        "listing-collects-every-letter",
        "A listing of dead letters takes only what is read.",
        [
            Edit(
                RABBIT_LETTERS,
                "        for _, properties, body in look:\n            inner, original",
                "        for _, properties, body in list(look):\n            inner, original",
            )
        ],
        [f"{RABBIT_SUITE}::test_a_listing_takes_only_what_is_read"],
    ),
    Defect(
        "alike-letters-done-once",
        "Two dead letters with one id are both done.",
        [Edit(RABBIT_LETTERS, "wanted = Counter(ids)", "wanted = Counter(set(ids))")],
        [f"{RABBIT_SUITE}::test_letters_that_are_alike_are_all_done"],
    ),
    Defect(
        "second-owner-of-a-group-starts",
        "A second app in one group is refused before it receives anything.",
        [
            Edit(
                "framework/oncemq/engine/group_ownership.py",
                "    if finding.conflicts:\n        raise",
                "    if not places:\n        raise",
            )
        ],
        [f"{GROUPS}::test_a_second_app_in_the_group_is_refused[embedded-sqlite]"],
    ),
    Defect(
        "second-owner-of-a-column-starts",
        "A second app that decides about a topic's messages by the same column is refused.",
        [
            Edit(
                "framework/oncemq/engine/group_ownership.py",
                "for column in owned]",
                "for column in owned[:0]]",
            )
        ],
        ["tests/unit/cli/test_shared_columns.py::test_a_second_app_that_decides_by_the_column_is_refused"],
    ),
    Defect(
        "last-owner-wins-a-group",
        "The first owner of a group keeps it.",
        [
            Edit(
                "framework/oncemq/ledger/coordination/groups.py",
                'upsert(connection, TABLE, row, {"name": row["name"]})',
                'upsert(connection, TABLE, row, {"owner": row["owner"]})',
            )
        ],
        ["tests/unit/ledger/coordination/test_groups.py::test_the_first_owner_keeps_a_place"],
    ),
    Defect(
        "private-queues-not-compared",
        "Two consumers of one app never share a queue by names that happen to be equal.",
        [
            Edit(
                "framework/oncemq/config/build/group_conflicts.py",
                "if other is consumer or _same_group(other, consumer):",
                "if other is not None:",
            )
        ],
        ["tests/unit/config/build/test_group_conflicts.py::test_queues_that_would_be_shared_are_refused"],
    ),
    Defect(
        "row-values-in-errors",
        "What a database quotes of a row is not shown unless asked for.",
        [
            Edit(
                "framework/oncemq/common/redaction.py",
                "PATTERNS if row_values else (*PATTERNS, *ROW_VALUES)",
                "(*PATTERNS, *ROW_VALUES) if row_values else PATTERNS",
            )
        ],
        ["tests/unit/common/test_redaction.py::test_values_of_rows_are_masked_unless_asked_for"],
    ),
    Defect(
        "private-folder-may-be-a-link",
        "A folder of our own in a shared place is no link.",
        [
            Edit(
                "framework/oncemq/common/private_files.py",
                "    found = path.lstat()\n    if not stat.S_ISDIR",
                "    found = path.stat()\n    if not stat.S_ISDIR",
            )
        ],
        ["tests/unit/common/test_private_files.py::test_a_link_is_no_private_folder"],
    ),
    Defect(
        "embedded-file-readable-to-all",
        "The embedded broker's files are private.",
        [Edit("framework/oncemq/common/private_files.py", "os.O_EXCL, 0o600", "os.O_EXCL, 0o644")],
        ["tests/unit/common/test_private_files.py::test_the_embedded_brokers_files_are_private"],
    ),
    Defect(
        "dying-process-taken-for-dead",
        "A crash is charged: the message of a process whose threads still end is not given to another.",
        [
            Edit(
                "adapters/oncemq_adapters/embedded/members.py",
                "if ended and threads <= 1 else",
                "if ended else",
            )
        ],
        [
            "tests/unit/adapters/embedded/test_liveness.py::test_a_process_lives_until_its_last_thread_has_ended"
        ],
    ),
    Defect(
        "ending-process-not-waited-for",
        "A crash is charged before the message runs again, also while the process that ran it is still ending.",
        [
            Edit(
                "framework/oncemq/engine/crash/suspects.py",
                "_ENDING_WITHIN = 0.5\n",
                "_ENDING_WITHIN = 0.0\n",
            )
        ],
        ["tests/unit/engine/crash/test_suspects.py::test_a_process_that_is_still_ending_is_waited_for"],
    ),
    Defect(
        "database-closed-under-a-statement",
        "An app that ends closes its database after the last statement, so no connection stays open.",
        [
            Edit(
                "framework/oncemq/engine/database_watch.py",
                "        if self._thread.is_alive():\n            self._thread.join(",
                "        if not self._thread.is_alive():\n            self._thread.join(",
            )
        ],
        ["tests/unit/engine/test_database_watch.py::test_the_database_is_closed_after_the_last_statement"],
    ),
    Defect(
        "idle-without-a-subscription",
        "A run that was never subscribed does not end well.",
        [
            Edit(
                STOPPING,
                "live = all(row.live for row in rows)",
                "live = True",
            )
        ],
        [f"{STOPS}::test_a_run_without_a_subscription_does_not_end_well"],
    ),
    Defect(
        "idle-while-retries-wait",
        "A run waits for what it has sent on for a retry.",
        [
            Edit(
                STOPPING,
                "min(idle_for, self._retries.since_due())",
                "idle_for",
            )
        ],
        [f"{STOPS}::test_retries_are_waited_for"],
    ),
    Defect(
        "frozen-time-is-quiet",
        "Time in which the process stood still does not end a run: what waits on the broker could not be received.",
        [Edit(STOPPING, "min(passed, _CREDIT)", "passed")],
        [f"{STOPS}::test_time_in_which_the_process_stood_still_is_not_quiet"],
    ),
    Defect(
        "idle-while-the-outbox-waits",
        "A run waits for published messages that a killed process had in hand.",
        [Edit(STOPPING, "left = parked + unsent", "left = parked")],
        [f"{STOPS}::test_published_messages_of_a_killed_process_are_waited_for"],
    ),
    Defect(
        "other-subscriptions-unseen",
        "A member of the group with another subscription is said in words.",
        [
            Edit(
                "adapters/oncemq_adapters/rocketmq/remoting/group_subscriptions.py",
                "        if dict(member.topics) != dict(wanted):\n",
                "        if not member.topics:\n",
            )
        ],
        ["tests/suites/rocketmq/test_subscriptions.py::test_another_subscription_is_found"],
    ),
    Defect(
        "renamed-starts-over",
        "A renamed consumer keeps the records of its former name.",
        [
            Edit(
                "framework/oncemq/config/build/consumer.py",
                'scope=f"{around.app}.{settled.ledger_name}"',
                'scope=f"{around.app}.{settled.name}"',
            )
        ],
        ["tests/unit/cli/test_renamed.py::test_a_renamed_consumer_keeps_everything"],
    ),
    Defect(
        "late-formerly-forgets",
        "What was applied under the new name before `formerly` was written is a record of the first name's, too.",
        [
            Edit(
                "framework/oncemq/engine/group_ownership.py",
                "lines = list(carry_over(plan)) if places else []",
                "lines: list[str] = []",
            )
        ],
        ["tests/unit/cli/test_renamed.py::test_formerly_written_late_joins_both_records"],
    ),
    Defect(
        "ledger-rights-not-tried",
        "An account that may not write the ledger is refused before anything runs.",
        [
            Edit(
                "framework/oncemq/ledger/database/rights.py",
                "    return RIGHTS[:1] if table.name == only_read.name else RIGHTS\n",
                "    return RIGHTS[:1]\n",
            )
        ],
        [
            "tests/unit/ledger/database/test_rights.py::test_an_account_that_only_reads_is_refused_with_the_grants[postgresql]"
        ],
    ),
    Defect(
        "tables-created-side-by-side",
        "Replicas that create the tables at the same time wait for each other.",
        [
            Edit(
                "framework/oncemq/ledger/database/schema_lock.py",
                "    connection.execute(_POSTGRESQL)\n",
                "",
            )
        ],
        [
            "tests/unit/ledger/test_schema.py::test_replicas_may_create_the_tables_at_the_same_time[postgresql]"
        ],
    ),
    Defect(
        "log-waits-for-its-reader",
        "A log pipe that nothing reads blocks no thread.",
        [
            Edit(
                "framework/oncemq/observe/log_output.py",
                "            if self._descriptor is not None:\n",
                "            if False:\n",
            )
        ],
        [
            "tests/unit/observe/test_log_output.py::test_an_app_works_and_ends_whatever_becomes_of_its_log[never-read]"
        ],
    ),
    Defect(
        "pause-forgotten-by-a-restart",
        "A process that starts takes nothing for a consumer that is paused.",
        [Edit(FOLLOWING, "            crew.consumer.gate.hold()\n", "            pass\n")],
        [f"{PAUSES}::test_a_consumer_paused_before_the_start_takes_nothing_until_it_is_resumed"],
    ),
    Defect(
        "paused-process-keeps-messages",
        "A paused consumer returns to the broker what it has not begun.",
        [Edit(FOLLOWING, "            crew.hand_back(crew.consumer.scheduler.withdraw())\n", "")],
        [f"{PAUSES}::test_a_pause_lets_what_runs_finish_and_returns_the_rest_to_the_broker"],
    ),
    Defect(
        "resume-ends-a-breakers-pause",
        "An operator's pause and a breaker's never end each other.",
        [
            Edit(
                "framework/oncemq/ledger/coordination/pauses.py",
                "    ours = (TABLE.c.consumer == consumer) & (TABLE.c.kind == kind)\n",
                "    ours = TABLE.c.consumer == consumer\n",
            )
        ],
        [f"{PAUSES}::test_neither_kind_of_pause_ends_the_other"],
    ),
)
