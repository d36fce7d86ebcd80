"""Nothing of an app grows with its messages but what it is asked to keep; the long form is `make growth`."""

from pathlib import Path

import pytest
from benchmarks.runs.growth import FAILING, measure

pytestmark = [pytest.mark.slow, pytest.mark.server, pytest.mark.timeout(600)]

MESSAGES = 1500
KEPT = {"oncemq_processed", "oncemq_history", "oncemq_audit"}
LOG = 1000
"""Bytes for a message that fails twice: a line for its retry, one for its dead letter."""


WAL = 16
"""Megabytes of two write-ahead logs: SQLite moves each into its file when it has 4 MB, and readers may delay that."""


def test_descriptors_threads_log_and_rows_do_not_grow(redis_url: str, tmp_path: Path) -> None:
    """While every tenth message fails, Redis goes away, and an operator's commands run beside it; each of those succeeds."""
    found = measure(tmp_path, MESSAGES, redis_url)
    failed = MESSAGES // FAILING
    _start, first, *_, last = found.looks
    assert found.applied == MESSAGES - failed
    assert last.descriptors <= first.descriptors + 2
    assert last.threads <= first.threads + 2
    assert max(look.wal for look in found.looks) < WAL
    assert found.log_bytes < LOG * failed + 20_000
    assert (found.rows["oncemq_processed"], found.rows["oncemq_history"]) == (found.applied, 2 * failed)
    changing = [name for name, _, code in found.operations if name in {"purge", "reconcile"} and code == 0]
    # Beside them the row of `tables create`.
    assert found.rows["oncemq_audit"] <= len(changing) + 1
    assert all(rows <= 1 for table, rows in found.rows.items() if table not in KEPT), found.rows
    # `status` says with 1 that an operator should look: there are dead letters.
    assert {code for name, _, code in found.operations if name != "status"} <= {0}
