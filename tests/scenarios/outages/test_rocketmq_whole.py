"""RocketMQ into a database: deaths of workers while messages flow leave every effect once."""

import pytest

from oncemq.cli.demo.show import Settings, play

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]


@pytest.mark.parametrize("kind", ["sqlite", pytest.param("postgresql", marks=pytest.mark.server)])
def test_a_killed_worker_loses_and_doubles_nothing(
    kind: str, rocketmq_url: str, request: pytest.FixtureRequest
) -> None:
    """Real order events, some sent twice and out of order; one of two processes is killed with SIGKILL midway."""
    database: str = request.getfixturevalue(f"{kind}_database")
    said: list[str] = []
    result = play(
        Settings(rocketmq_url, database, None, 1, 2),
        lambda what, done, total: said.append(f"{what} {done}/{total}"),
    )
    assert result.killed is not None, said
    assert result.tally.holds, result.log
    assert result.tally.lost == 0
