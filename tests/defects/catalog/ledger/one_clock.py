"""Defects of the one clock: records, leases and purges go by the database's time."""

from defects.defect import Defect, Edit

CLOCK = "framework/oncemq/ledger/database/server_clock.py"
TESTS = "tests/unit/ledger/database/test_server_clock.py"

DEFECTS = (
    Defect(
        "purged-by-the-process-clock",
        "Nothing is purged before it is old enough by the database's own clock.",
        [
            Edit(
                "framework/oncemq/ledger/purge.py",
                "and_(moment < before, moment < server_moment(dialect, keep))",
                "moment < before",
            )
        ],
        [f"{TESTS}::test_a_process_that_is_ahead_purges_nothing_young"],
    ),
    Defect(
        "written-by-the-process-clock",
        "Records carry the database's time, so that a clock that is behind makes none that others purge.",
        [
            Edit(
                CLOCK,
                "        return self._inner.now() + self._offset\n",
                "        return self._inner.now()\n",
            )
        ],
        [
            f"{TESTS}::test_a_wrong_clock_is_measured_and_set_right",
            f"{TESTS}::test_a_process_that_is_behind_writes_records_that_live_as_long_as_any",
        ],
    ),
    Defect(
        "taken-over-by-the-process-clock",
        "A lease is taken over only when it has ended by the database's clock.",
        [
            Edit(
                "framework/oncemq/ledger/coordination/leases.py",
                "and_(TABLE.c.until < now, TABLE.c.until < server_moment(connection.dialect))",
                "and_(TABLE.c.until < now)",
            )
        ],
        [f"{TESTS}::test_a_process_that_is_ahead_takes_no_lease_that_is_held"],
    ),
    Defect(
        "skewed-process-purges",
        "A process whose clock is far from the database's leaves purging and take-overs to others.",
        [Edit(CLOCK, ">= REFUSE_FROM", "< timedelta(0)")],
        [f"{TESTS}::test_a_process_far_from_the_database_leaves_shared_work_to_others"],
    ),
    Defect(
        "outbox-taken-over-by-the-process-clock",
        "What another process is about to send is taken over only when its time has ended by the database's clock.",
        [
            Edit(
                "framework/oncemq/ledger/messages/outbox.py",
                "and_(TABLE.c.due_at <= now, TABLE.c.due_at <= server_moment(dialect))",
                "and_(TABLE.c.due_at <= now)",
            )
        ],
        [f"{TESTS}::test_a_process_that_is_ahead_takes_nothing_that_another_holds"],
    ),
)
