"""Decides which tests stay together in one worker of pytest-xdist, and that the longest begin first.

With `--dist loadscope` the work is handed out in the order of the collection, so that a run ends with many short tests
instead of one worker that is alone with a storm. xdist's own groups are not used: not every version of it and of pytest
agree on how a test tells its group.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

TOGETHER: Mapping[str, str] = {
    "tests/storm/test_storm.py": "RabbitMQ and PostgreSQL that tests break",
    "tests/storm/test_recovery.py": "RabbitMQ and PostgreSQL that tests break",
}
"""Modules that share servers of the tests' own, which are started once a worker."""

APART: Sequence[str] = (
    "tests/matrix/test_accepted.py",
    "tests/poison/test_poison_ways.py",
    "tests/rocketmq_native/test_storm.py",
    "tests/rocketmq_grpc/test_storm.py",
    "tests/scenarios/random/test_histories.py",
    "tests/scenarios/input/test_hostile_input.py",
    "tests/scenarios/random/test_model.py",
    "tests/storm/test_crash_grid.py",
    "tests/storm/test_locks.py",
)
"""Modules whose tests take long, and need nothing in common that is expensive to make in each worker."""

LONGEST_FIRST: Sequence[str] = (
    "tests/storm",
    "tests/scenarios",
    "tests/suites/rocketmq",
    "tests/suites/rabbitmq",
    "tests/interop",
    "tests/matrix",
    "tests/poison",
    "tests/suites",
    "tests/alone",
    "tests/unit/cli",
    "tests/unit/redis",
    "tests/unit/strategies",
    "tests/unit/test_",
    "tests/unit/adapters",
    "tests/unit/engine",
)
"""Beginnings of paths; what is not among them comes last."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Order what a worker collects; the controller hands it out in this order."""
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: rank(item.nodeid, slow=item.get_closest_marker("slow") is not None))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Return the scheduler for `--dist loadscope`."""
    if config.getoption("dist") != "loadscope":
        return None
    # Not in every environment is there an xdist.
    from xdist.scheduler import LoadScopeScheduling  # noqa: PLC0415

    class InOrder(LoadScopeScheduling):
        """Hands out groups in the order in which their first tests were collected."""

        def _split_scope(self, nodeid: str) -> str:
            return group(nodeid)

    config.option.loadscopereorder = False
    return InOrder(config, log)


def rank(nodeid: str, *, slow: bool) -> tuple[bool, int, bool]:
    """Return the place of a test: storms on shared servers first, then as listed, what is slow before the rest."""
    place = next(
        (at for at, start in enumerate(LONGEST_FIRST) if nodeid.startswith(start)), len(LONGEST_FIRST)
    )
    return path_of(nodeid) not in TOGETHER, place, not slow


def group(nodeid: str) -> str:
    """Return the name of what stays in one worker: a module, or a class of one, unless it is listed otherwise."""
    path = path_of(nodeid)
    if path in TOGETHER:
        return TOGETHER[path]
    return nodeid if path in APART else nodeid.partition("[")[0].rpartition("::")[0]


def path_of(nodeid: str) -> str:
    """Return a test's file."""
    return nodeid.partition("::")[0]
