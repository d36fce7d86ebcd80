"""Defects of what RocketMQ's Java clients and tools ask of a member."""

from defects.defect import Defect, Edit

REMOTING = "adapters/oncemq_adapters/rocketmq/remoting"
DIRECT = f"{REMOTING}/consumer/direct_runs.py"
DIRECT_TESTS = "tests/unit/adapters/rocketmq/remoting/consumer/test_direct_runs.py"
TRACE_TESTS = "tests/unit/adapters/rocketmq/remoting/consumer/test_message_trace.py"
POP_TESTS = "tests/suites/rocketmq/test_pop.py"
CONNECTION_TESTS = "tests/unit/adapters/rocketmq_client/protocol/test_connection.py"

DEFECTS = (
    Defect(
        "unknown-request-unanswered",
        "A request that is unknown here is answered at once.",
        [
            Edit(
                "adapters/oncemq_adapters/rocketmq_client/protocol/connection.py",
                "codes.ONE_WAY or isinstance(body, Deferred):",
                "codes.ONE_WAY or body is None or isinstance(body, Deferred):",
            )
        ],
        [f"{CONNECTION_TESTS}::test_an_unknown_request_is_answered_as_not_supported[None]"],
    ),
    Defect(
        "direct-run-answered-early",
        "An administrator who has a message run is told what became of it.",
        [
            Edit(
                "adapters/oncemq_adapters/rocketmq_client/protocol/connection.py",
                "codes.ONE_WAY or isinstance(body, Deferred):",
                "codes.ONE_WAY:",
            )
        ],
        [f"{CONNECTION_TESTS}::test_an_answer_that_follows_is_not_given_before"],
    ),
    Defect(
        "dead-letter-run-doubles-it",
        "A dead letter that is run where it lies, and fails, makes no second one.",
        [Edit(DIRECT, "is not None and queue.letter\n", "is not None and False\n")],
        [f"{DIRECT_TESTS}::test_only_a_dead_letter_makes_no_other_one"],
    ),
    Defect(
        "orderly-lock-of-our-own",
        "Orderly members of Java and ours wait for each other.",
        [
            Edit(
                f"{REMOTING}/consumer/queue_locks.py",
                "self._group = group if fifo else retry_topic(group)",
                "self._group = retry_topic(group)",
            )
        ],
        ["tests/interop/test_rocketmq_orderly.py::test_order_is_kept_while_members_join_and_leave"],
    ),
    Defect(
        "trace-of-a-stranger",
        "A message with an endless id keeps the trace of no other one from being sent.",
        [Edit(f"{REMOTING}/consumer/message_trace.py", "len(named) > _LONGEST_ID", "False")],
        [f"{TRACE_TESTS}::test_what_the_producer_excludes_is_not_traced"],
    ),
    Defect(
        "trace-waits-for-ever",
        "A trace that cannot be sent fills no memory.",
        [Edit(f"{REMOTING}/consumer/message_trace.py", "len(self._waiting) >= MOST_WAITING", "False")],
        [f"{TRACE_TESTS}::test_many_records_are_few_messages_and_never_too_many"],
    ),
    Defect(
        "direct-run-of-another-tag",
        "An administrator cannot have a consumer run what it does not subscribe to.",
        [Edit(DIRECT, "if wanted and tag not in wanted:", "if False:")],
        [f"{DIRECT_TESTS}::test_what_cannot_run_is_answered_at_once"],
    ),
    Defect(
        "pop-group-is-joined",
        "An app that pulls joins no group whose messages brokers hand out.",
        [Edit(f"{REMOTING}/pop_watch.py", "if trouble := popping(", "if False and popping(")],
        [f"{POP_TESTS}::test_a_group_that_is_set_to_pop_is_refused"],
    ),
    Defect(
        "resumed-although-pop",
        "The end of another pause lets no consumer pull while its group is set to POP.",
        [Edit(f"{REMOTING}/pop_watch.py", "if consumer not in self.trouble:", "if True:")],
        [f"{POP_TESTS}::test_the_end_of_another_pause_is_not_the_end_of_this_one"],
    ),
)
