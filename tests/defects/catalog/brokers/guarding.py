"""Defects of connecting and subscribing: what is skipped unseen, and what one missing part does to the others."""

from defects.defect import Defect, Edit

SUPERVISOR = "tests/unit/engine/test_supervisor.py"
RABBITMQ_TRAPS = "tests/suites/rabbitmq/test_traps.py"
RABBITMQ_EXAMINATION = "tests/suites/rabbitmq/test_examination.py"
ROCKETMQ_TRAPS = "tests/suites/rocketmq/test_traps.py"
WHOLE = "tests/unit/adapters/rocketmq/native/test_message_reader.py"
SESSION = "tests/unit/adapters/rocketmq/native/test_session.py"

DEFECTS = (
    Defect(
        "added-queue-read-from-its-end",
        "A queue that did not exist when the group began is read from its beginning.",
        [
            Edit(
                "adapters/oncemq_adapters/rocketmq_client/admin/group_start.py",
                "where = FIRST if begun and start == LAST else start",
                "where = start",
            )
        ],
        [f"{ROCKETMQ_TRAPS}::test_queues_added_while_a_group_is_away_are_read_from_their_beginning"],
    ),
    Defect(
        "route-not-asked-again",
        "A message that librocketmq holds is looked for in queues that were added, too.",
        [
            Edit(
                "adapters/oncemq_adapters/rocketmq/native/message_reader.py",
                "                self._routes.ask(topic)\n",
                "                self._routes.find(topic)\n",
            )
        ],
        [f"{WHOLE}::test_message_in_a_queue_that_was_added_is_found"],
    ),
    Defect(
        "message-not-found-is-finished",
        "A message that cannot be found is never finished, unless its queue begins behind it.",
        [
            Edit(
                "adapters/oncemq_adapters/rocketmq/native/message_reader.py",
                "if not found and not self._deleted(topics, number, offset):",
                "if not found and not topics:",
            )
        ],
        [f"{WHOLE}::test_message_that_is_nowhere_is_not_gone"],
    ),
    Defect(
        "missing-message-delays-others",
        "A message that cannot be found now waits aside.",
        [
            Edit(
                "adapters/oncemq_adapters/rocketmq/native/session.py",
                "self._aside.at(_AGAIN_AFTER, self._look_up, identity, tries + 1)\n            return",
                "self._look_up(identity, tries + 1) if tries < 50 else None\n            return",
            )
        ],
        [f"{SESSION}::test_message_that_cannot_be_found_is_never_finished_and_delays_no_other"],
    ),
    Defect(
        "stream-examined-as-a-queue",
        "A stream is refused at the start and by `check --connect`.",
        [
            Edit(
                "adapters/oncemq_adapters/rabbitmq/topology/declare.py",
                "return insist_on_queue(connection, place.queue)",
                'return ""',
            )
        ],
        [f"{RABBITMQ_EXAMINATION}::test_a_stream_is_found"],
    ),
    Defect(
        "stream-subscribed",
        "The subscription itself is refused when a queue has become a stream.",
        [
            Edit(
                "adapters/oncemq_adapters/rabbitmq/consuming/subscription.py",
                "        return dict(NO_STREAM)",
                "        return {}",
            ),
            Edit(
                "adapters/oncemq_adapters/rabbitmq/topology/declare.py",
                "return insist_on_queue(connection, place.queue)",
                'return ""',
            ),
        ],
        ["tests/suites/rabbitmq/test_queues_and_exchanges.py::test_a_stream_is_never_consumed"],
    ),
    Defect(
        "repair-on-the-shared-thread",
        "One consumer's missing queue delays no other consumer.",
        [
            Edit(
                "adapters/oncemq_adapters/rabbitmq/consuming/subscription.py",
                "            daemon=True,\n        ).start()",
                "            daemon=True,\n        ).run()",
            )
        ],
        [
            "tests/suites/rabbitmq/test_queues_and_exchanges.py::test_looking_for_a_missing_queue_delays_no_other_consumer"
        ],
    ),
    Defect(
        "silent-host-waited-for",
        "A silent host keeps no other from being tried.",
        [
            Edit(
                "adapters/oncemq_adapters/rabbitmq/connection/host_order.py",
                "for patience in (FIRST_LOOK, None) if",
                "for patience in (None, None) if",
            )
        ],
        [f"{RABBITMQ_TRAPS}::test_a_silent_host_keeps_no_other_from_being_tried"],
    ),
    Defect(
        "useful-worker-waits",
        "A worker process that did useful work is started again at once.",
        [Edit("framework/oncemq/engine/supervisor.py", "if child.useful or now", "if now")],
        [f"{SUPERVISOR}::test_a_worker_that_was_useful_is_started_at_once[forked]"],
    ),
    Defect(
        "stop-longer-than-grace",
        "A worker that does not end is killed before the grace is over.",
        [
            Edit(
                "framework/oncemq/engine/stop_times.py",
                "max(grace - min(_KILLING",
                "max(grace + 5 * min(_KILLING",
            )
        ],
        ["tests/unit/engine/test_stop_times.py::test_all_of_a_stop_fits_into_the_grace"],
    ),
    Defect(
        "lost-worker-at-fault",
        "No message is charged for the end of a worker whose fork server was killed.",
        [Edit("framework/oncemq/engine/supervisor.py", "child.killed or lost", "child.killed")],
        [f"{SUPERVISOR}::test_workers_of_a_killed_fork_server_are_replaced_by_spawned_ones[forked]"],
    ),
    Defect(
        "fork-server-obeys-signals",
        "A signal to the whole process group does not end the fork server.",
        [
            Edit(
                "framework/oncemq/common/fork_server.py",
                "signal.pthread_sigmask(signal.SIG_BLOCK, _BLOCKED)",
                "signal.pthread_sigmask(signal.SIG_BLOCK, [])",
            )
        ],
        [f"{SUPERVISOR}::test_a_signal_to_the_whole_process_group_drains[forked]"],
    ),
    Defect(
        "forks-beside-threads",
        "Nothing is forked in a process that has threads.",
        [
            Edit(
                "framework/oncemq/common/fork_server.py",
                "os.fork() if _threads() == 1 else None",
                "os.fork()",
            )
        ],
        ["tests/unit/common/test_fork_server.py::test_nothing_is_forked_beside_a_thread"],
    ),
    Defect(
        "worker-asked-twice-ends-at-once",
        "A worker that gets SIGTERM from a service manager and from its supervisor drains.",
        [Edit("framework/oncemq/app_process.py", "if seen > 1 and not supervised:", "if seen > 1:")],
        ["tests/unit/cli/commands/test_run.py::test_a_worker_drains_however_often_it_is_asked"],
    ),
    Defect(
        "orphan-never-ends",
        "A worker that does not drain ends when its supervisor is gone.",
        [
            Edit(
                "framework/oncemq/engine/supervision/child.py",
                "_leave_within(kill_after, _FAILED)",
                "time.sleep(0)",
            )
        ],
        [f"{SUPERVISOR}::test_a_worker_that_outlasts_its_supervisor_ends_by_itself[forked]"],
    ),
    Defect(
        "forked-process-holds-the-end",
        "A worker's end does not wait for a process that a handler forked.",
        [
            Edit(
                "framework/oncemq/engine/supervision/child.py",
                "_leave_within(_EXIT_WITHIN, code)",
                "time.sleep(0)",
            )
        ],
        [f"{SUPERVISOR}::test_a_forked_process_does_not_hold_the_end[forked]"],
    ),
    Defect(
        "forked-process-ignores-signals",
        "A process that a handler forked ends by a signal.",
        [
            Edit(
                "framework/oncemq/engine/supervision/child.py",
                "os.register_at_fork(after_in_child=_obey_signals_as_usual)",
                "time.sleep(0)",
            )
        ],
        [f"{SUPERVISOR}::test_a_forked_process_does_not_hold_the_end[forked]"],
    ),
    Defect(
        "forked-process-keeps-the-lock",
        "A process that a handler forked does not hide the death of its worker.",
        [
            Edit(
                "framework/oncemq/engine/crash/process_lock.py",
                "os.register_at_fork(after_in_child=partial(_release_in_child, ref(self)))",
                "partial(_release_in_child, ref(self))",
            )
        ],
        ["tests/unit/engine/crash/test_process_lock.py::test_a_forked_process_does_not_keep_the_lock"],
    ),
    Defect(
        "frozen-worker-unseen",
        "A worker that does not respond is replaced.",
        [Edit("framework/oncemq/engine/supervisor.py", "child.silence += passed", "child.silence = 0.0")],
        [f"{SUPERVISOR}::test_a_stopped_worker_is_replaced[forked]"],
    ),
    Defect(
        "slow-start-is-frozen",
        "A worker that has not said its first word is given longer than one that has fallen silent.",
        [Edit("framework/oncemq/engine/supervisor.py", "(1 if child.heard else _STARTS_SLOWER)", "1")],
        [f"{SUPERVISOR}::test_a_worker_that_still_starts_has_longer[False-killed0]"],
    ),
    Defect(
        "silent-database-waited-for",
        "Nothing waits without limit for a database that does not answer.",
        [
            Edit(
                "framework/oncemq/engine/database_watch.py",
                "elif now - since >= PROBE_WITHIN:",
                "elif now - since >= 1e9:",
            )
        ],
        [
            "tests/unit/engine/test_silent_database.py::test_what_waits_for_a_silent_database_is_tried_again[mariadb]"
        ],
    ),
    Defect(
        "opened-connection-unknown",
        "Every connection to a database that does not answer is ended.",
        [
            Edit(
                "framework/oncemq/ledger/database/open_connections.py",
                'event.listen(engine, "connect", self._opened)',
                "",
            )
        ],
        [
            "tests/unit/ledger/database/test_open_connections.py::test_a_connection_that_is_opened_later_is_ended[mariadb]"
        ],
    ),
    Defect(
        "pooled-connection-unknown",
        "Also a connection that was in the pool before is ended.",
        [
            Edit(
                "framework/oncemq/ledger/database/open_connections.py",
                "if isinstance(engine.pool, QueuePool) and engine.pool.checkedin() + engine.pool.checkedout():",
                "if not isinstance(engine.pool, QueuePool):",
            )
        ],
        [
            "tests/unit/ledger/database/test_open_connections.py::test_a_connection_that_was_in_the_pool_before_is_ended[mariadb]"
        ],
    ),
    Defect(
        "login-waits-without-limit",
        "A login that is not answered is given up.",
        [
            Edit(
                "framework/oncemq/ledger/database/engine.py",
                '"read_timeout": _CONNECT_SECONDS,',
                '"read_timeout": None,',
            )
        ],
        [
            "tests/unit/engine/test_silent_database.py::test_a_login_that_is_not_answered_is_no_wait_without_limit[mariadb]"
        ],
    ),
    Defect(
        "pooler-unnoticed",
        "Behind a pooler in transaction mode no statement is prepared.",
        [
            Edit(
                "framework/oncemq/ledger/database/transaction_pooling.py",
                "return _server_process(first) == _server_process(second)",
                "return False",
            )
        ],
        ["tests/unit/engine/test_pgbouncer.py::test_the_limit_of_lock_waits_holds_in_each_transaction"],
    ),
    Defect(
        "prepared-elsewhere-is-charged",
        "A statement that is prepared on another connection of the server costs no attempt.",
        [
            Edit(
                "framework/oncemq/ledger/database/transaction_pooling.py",
                "context.is_disconnect = True",
                "context.is_disconnect = False",
            )
        ],
        ["tests/unit/engine/test_pgbouncer.py::test_no_message_loses_an_attempt[False]"],
    ),
    Defect(
        "cut-ends-the-start",
        "A connection that is cut during the start does not end the app.",
        [
            Edit(
                "framework/oncemq/engine/application.py",
                "if classify(error) not in {Fault.OFFLINE, Fault.TRANSIENT}:",
                "if error:",
            )
        ],
        [
            "tests/unit/engine/test_cut_at_start.py::test_a_cut_at_any_statement_of_the_start_is_survived[postgresql]"
        ],
    ),
    Defect(
        "pause-shared-by-workers",
        "One worker's early deaths do not make another wait.",
        [
            Edit(
                "framework/oncemq/engine/supervisor.py",
                "pause = self._pauses.get(child.index, _FIRST_PAUSE)",
                "pause = max(self._pauses.values(), default=_FIRST_PAUSE)",
            )
        ],
        [f"{SUPERVISOR}::test_a_worker_that_dies_young_delays_no_other[forked]"],
    ),
    Defect(
        "fatal-packing-unknown",
        "A message of which librocketmq dies is found by how its body is packed.",
        [
            Edit(
                "adapters/oncemq_adapters/rocketmq/native/crash_bypass.py",
                "return bool(message.trouble) or flags >> _KIND_AT & _KINDS not in _ZLIB",
                "return bool(message.trouble)",
            )
        ],
        [
            "tests/unit/adapters/rocketmq/native/test_crash_bypass.py::test_packing_tells_what_the_library_dies_of"
        ],
    ),
    Defect(
        "select-above-its-limit",
        "A process may have more than 1,024 open files.",
        [
            Edit(
                "adapters/oncemq_adapters/rocketmq_client/protocol/connection.py",
                "            except ssl.SSLWantReadError:\n                self._readable.poll(_WAIT)",
                "            except ssl.SSLWantReadError:\n                select.select([self._socket], [], [], SEND_WITHIN)",
            )
        ],
        [
            "tests/unit/adapters/rocketmq_client/protocol/test_stream.py::test_tls_waits_in_a_process_with_many_open_files"
        ],
    ),
    Defect(
        "body-answered-as-a-request",
        "A connection to the HTTP endpoint is answered once.",
        [
            Edit(
                "framework/oncemq/observe/endpoint.py",
                '        self.send_header("Connection", "close")\n',
                "",
            )
        ],
        ["tests/unit/observe/test_endpoint.py::test_body_is_never_taken_for_a_request"],
    ),
    Defect(
        "endpoint-threads-unbounded",
        "Slow clients of the HTTP endpoint take no more threads than allowed.",
        [
            Edit(
                "framework/oncemq/observe/endpoint.py",
                "        _shut(oldest)\n        if full:",
                "        if not oldest and full:",
            )
        ],
        ["tests/unit/observe/test_endpoint.py::test_slow_clients_take_no_more_threads_than_allowed"],
    ),
    Defect(
        "give-back-spends-the-limit",
        "Giving back does not spend a quorum queue's delivery limit.",
        [
            Edit(
                "adapters/oncemq_adapters/rabbitmq/topology/delivery_limit.py",
                "return isinstance(count, int) and count >= WORN",
                "return isinstance(count, int) and count >= 100 * WORN",
            )
        ],
        [f"{RABBITMQ_TRAPS}::test_giving_back_does_not_spend_a_delivery_limit"],
    ),
    Defect(
        "rights-not-tried",
        "An account that may not publish retries is found by `check --connect`.",
        [
            Edit(
                "adapters/oncemq_adapters/rabbitmq/topology/rights.py",
                "if error.reply_code == faults.FORBIDDEN:",
                "if not error.reply_code:",
            )
        ],
        [f"{RABBITMQ_TRAPS}::test_check_tries_every_right_of_the_account"],
    ),
    Defect(
        "queue-of-a-lost-node-is-missing",
        "A queue whose node is away does not count as missing or empty.",
        [
            Edit(
                "adapters/oncemq_adapters/rabbitmq/connection/errors.py",
                " and not _AWAY.search(str(error.reply_text))",
                "",
            )
        ],
        [
            "tests/unit/adapters/rabbitmq/connection/test_errors.py::test_a_queue_on_a_node_that_is_away_is_not_missing"
        ],
    ),
)
