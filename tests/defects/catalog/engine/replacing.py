"""Defects of worker processes that are replaced by successors."""

from defects.defect import Defect, Edit

SUPERVISION = "framework/oncemq/engine/supervision"
TESTS = "tests/unit/engine/supervision"
TURNS = "framework/oncemq/cli/reload/turns.py"
RELOADER = "framework/oncemq/cli/reload/reloader.py"
REPLACING = f"{TESTS}/test_replacing.py"
RECYCLING = f"{TESTS}/test_recycling.py"
LOOKS = "tests/unit/upkeep/test_runner.py"

DEFECTS = (
    Defect(
        "lease-ignored-by-looks",
        "One process looks for what is due each second, the others every five.",
        [
            Edit(
                "framework/oncemq/upkeep/runner.py",
                "if task.pace is not None and self._leads(task):",
                "if task.pace is not None:",
            )
        ],
        [f"{LOOKS}::test_one_process_looks_often_and_the_others_at_their_own_pace[sqlite]"],
    ),
    Defect(
        "free-lease-not-taken",
        "When the process that looks each second has died, another one does.",
        [
            Edit(
                "framework/oncemq/upkeep/runner.py",
                "zip(leased, answers, strict=False) if taken}",
                "zip(leased, answers, strict=False)}",
            )
        ],
        [f"{LOOKS}::test_another_looks_often_when_that_process_has_died[sqlite]"],
    ),
    Defect(
        "pause-not-noticed",
        "A pause in the ledger is read by every process, although it reads nothing while there is none.",
        [
            Edit(
                "framework/oncemq/engine/ordered_pauses.py",
                "if at_once or self._paused() or self._signals.any(PAUSES):",
                "if at_once or self._paused():",
            )
        ],
        [
            "tests/unit/engine/test_ordered_pauses.py::test_a_pause_lets_what_runs_finish_and_returns_the_rest_to_the_broker"
        ],
    ),
    Defect(
        "drains-before-its-successor",
        "A worker drains when its successor is ready, and not before.",
        [Edit(f"{SUPERVISION}/replacing.py", "if pair.new.ready is not None:", "if pair.new is not None:")],
        [f"{REPLACING}::test_a_successor_that_is_never_ready_is_killed"],
    ),
    Defect(
        "two-replaced-at-once",
        "There is one process more than workers at most.",
        [Edit(f"{SUPERVISION}/replacing.py", "if late or not self._wanted", "if not self._wanted")],
        [f"{REPLACING}::test_workers_are_replaced_one_after_the_other"],
    ),
    Defect(
        "failed-successor-ends-the-app",
        "A successor that cannot start changes nothing.",
        [
            Edit(
                "framework/oncemq/engine/supervisor.py",
                "return 0 if young or step is not None else",
                "return 0 if young else",
            )
        ],
        [f"{REPLACING}::test_a_successor_with_a_fatal_code_ends_nothing"],
    ),
    Defect(
        "undrained-predecessor-stays",
        "A worker that was replaced and does not drain is killed at the end of the grace.",
        [
            Edit(
                f"{SUPERVISION}/replacing.py",
                "now - child.leaving > self._kill_after",
                "now - child.leaving > 9 * 9 * self._kill_after",
            )
        ],
        [f"{REPLACING}::test_a_predecessor_that_does_not_drain_is_killed_at_the_end_of_the_grace"],
    ),
    Defect(
        "promoted-successor-not-restarted",
        "A successor that has taken the place of a dead worker is started again when it dies.",
        [
            Edit(
                "framework/oncemq/engine/supervisor.py",
                "            self._replacements.give_up()\n            self._start_later(child)",
                "            self._replacements.give_up()",
            )
        ],
        [f"{REPLACING}::test_a_promoted_successor_that_dies_is_started_again"],
    ),
    Defect(
        "supervisor-dies-of-a-reload",
        "A successor may be ready after its reload was given up.",
        [
            Edit(
                f"{SUPERVISION}/replacing.py",
                "self._wanted.pop(pair.old.index, None)",
                "del self._wanted[pair.old.index]",
            )
        ],
        [f"{RECYCLING}::test_a_successor_takes_over_what_nothing_wants_replaced_any_more"],
    ),
    Defect(
        "recycled-together",
        "Processes that started together are not due together.",
        [Edit(f"{SUPERVISION}/recycling.py", "_EARLIER = 0.2", "_EARLIER = 0.0")],
        [f"{RECYCLING}::test_processes_that_start_together_are_due_at_different_times"],
    ),
    Defect(
        "recycled-for-ever",
        "A process that exceeds the limit of memory from its start is not replaced for it.",
        [Edit(f"{SUPERVISION}/recycling.py", "        self._bytes = None\n", "")],
        [f"{RECYCLING}::test_a_limit_that_a_process_exceeds_from_its_start_is_not_kept"],
    ),
    Defect(
        "recycled-beside-its-namesake",
        "A static member of Kafka is not recycled.",
        [
            Edit(
                "framework/oncemq/config/build/shared_parts.py",
                'if option is not None:\n            report.at(\n                ("recycle",)',
                'if option == "":\n            report.at(\n                ("recycle",)',
            )
        ],
        ["tests/unit/config/build/test_recycle.py::test_static_members_of_kafka_cannot_be_recycled"],
    ),
    Defect(
        "worker-stays-as-before-a-reload",
        "A worker that is dead when a reload begins, and is started again as it was, is replaced, too.",
        [
            Edit(
                "framework/oncemq/engine/supervisor.py",
                "for child in self._children.values() if child.main is not wanted)",
                "for child in self._children.values() if child.main is None)",
            )
        ],
        [f"{REPLACING}::test_a_worker_that_is_dead_when_a_reload_begins_does_not_stay_as_it_was"],
    ),
    Defect(
        "reload-under-two-strategies",
        "Old and new processes of a reload make messages idempotent in the same way.",
        [Edit("framework/oncemq/cli/reload/candidate.py", '    "strategies",\n', "")],
        [
            "tests/unit/cli/test_reload_candidate.py::test_what_decides_about_duplicates_and_order_needs_a_stop"
        ],
    ),
    Defect(
        "reload-beside-its-former-name",
        "A consumer that takes over the records of one that runs is not reloaded.",
        [
            Edit(
                "framework/oncemq/cli/reload/candidate.py",
                "if name not in running_consumers and former in running_consumers",
                "if name in running_consumers and former in running_consumers",
            )
        ],
        [
            "tests/unit/cli/test_reload_candidate.py::test_a_consumer_that_takes_over_a_running_ones_records_needs_a_stop"
        ],
    ),
    Defect(
        "checked-text-read-again",
        "Every process of a reload runs the text that was checked.",
        [
            Edit(
                "framework/oncemq/config/source/read.py",
                "known[file] if file in known else _read(file)",
                "_read(file)",
            )
        ],
        [
            "tests/unit/cli/test_reload_candidate.py::test_texts_that_were_pinned_are_loaded_whatever_the_file_says"
        ],
    ),
    Defect(
        "secret-in-the-history",
        "Secrets that a file holds are not stored in the ledger.",
        [
            Edit(
                "framework/oncemq/config/source/masking.py",
                "text = _with_credentials(_PARAMETER.sub(_hide_parameter, text), _hide)",
                "text = _PARAMETER.sub(_hide_parameter, text)",
            )
        ],
        [
            "tests/unit/config/source/test_masking.py::test_what_is_written_out_is_masked_and_references_stay",
            "tests/unit/cli/test_config_commands.py::test_the_history_has_outcomes_reasons_and_no_secrets",
        ],
    ),
    Defect(
        "error-of-a-reload-unmasked",
        "Problems of a refused configuration are stored without the secrets of its files.",
        [
            Edit(
                "framework/oncemq/operate/configuration/history.py",
                "problems=tuple(map(redact, problems)),",
                "problems=tuple(problems),",
            )
        ],
        ["tests/unit/cli/test_config_commands.py::test_the_history_has_outcomes_reasons_and_no_secrets"],
    ),
    Defect(
        "rollback-with-masks",
        "A rollback never writes a mask in the place of a secret.",
        [
            Edit(
                "framework/oncemq/config/source/masking.py",
                "            if whole is None:\n                missing.append(value.path)\n",
                "",
            )
        ],
        ["tests/unit/config/source/test_masking.py::test_a_place_without_a_secret_is_named"],
    ),
    Defect(
        "rollback-unchecked",
        "A rollback writes nothing that cannot run.",
        [Edit("framework/oncemq/operate/configuration/former.py", "    load(files, texts=whole)\n", "")],
        ["tests/unit/cli/test_config_commands.py::test_a_rollback_to_what_cannot_run_writes_nothing"],
    ),
    Defect(
        "request-met-by-an-older-text",
        "A process that read its files before a request reloads them.",
        [
            Edit(
                "framework/oncemq/cli/reload/ledger_requests.py",
                "if request is not None and request.asked_at < server_time(connection) - age:",
                "if request is not None and request.asked_at < server_time(connection):",
            )
        ],
        ["tests/unit/cli/test_reload_requests.py::test_a_request_that_came_while_it_was_starting_is_obeyed"],
    ),
    Defect(
        "history-without-a-bound",
        "The history of an app's configurations is bounded.",
        [
            Edit(
                "framework/oncemq/ledger/records/configurations.py",
                "    if last is not None:\n        connection.execute(delete(NOTES)",
                "    if last is None:\n        connection.execute(delete(NOTES)",
            )
        ],
        [
            "tests/unit/ledger/records/test_configurations.py::test_what_has_run_stays_longer_than_what_was_refused[sqlite]"
        ],
    ),
    Defect(
        "two-machines-at-once",
        "One process of an app after the other replaces its workers.",
        [Edit(TURNS, "            return leases.acquire(", "            return True or leases.acquire(")],
        [
            "tests/unit/cli/test_reload_turns.py::test_a_process_waits_until_the_one_before_it_has_ended_its_turn"
        ],
    ),
    Defect(
        "turn-that-runs-out",
        "A process that replaces many workers keeps its turn.",
        [Edit(TURNS, '"""Extend the turn."""\n        self._acquire()', '"""Extend the turn."""')],
        ["tests/unit/cli/test_reload_turns.py::test_a_turn_that_takes_longer_than_its_lease_is_kept"],
    ),
    Defect(
        "turn-of-the-dead",
        "A process that has died in its turn is passed over after half a minute.",
        [Edit(TURNS, "until=now + LEASE", "until=now + 999 * LEASE")],
        ["tests/unit/cli/test_reload_turns.py::test_a_turn_that_takes_longer_than_its_lease_is_kept"],
    ),
    Defect(
        "reload-out-of-turn",
        "What an operator asks of all processes is obeyed in turn.",
        [Edit(RELOADER, "None if at_once else self._turns", "None")],
        ["tests/unit/cli/test_reload_order.py::test_a_request_in_the_ledger_is_obeyed_in_turn"],
    ),
    Defect(
        "waits-with-an-older-text",
        "A process that waits for its turn takes over what its files say after the latest request.",
        [Edit(RELOADER, "return not self._asked.empty()", "return False")],
        [
            "tests/unit/cli/test_reload_order.py::test_a_process_that_waits_reads_its_files_again_for_a_later_request"
        ],
    ),
    Defect(
        "only-the-latest-configuration",
        "A record that two configurations may have written names both.",
        [
            Edit(
                "framework/oncemq/operate/configuration/by_time.py",
                "each.load.at <= moment <",
                "moment <= each.load.at <",
            )
        ],
        [
            "tests/unit/cli/test_configuration_by_time.py::test_while_processes_reload_one_after_the_other_both_are_named"
        ],
    ),
)
