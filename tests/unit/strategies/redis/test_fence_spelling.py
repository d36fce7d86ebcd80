"""The fence of a row is raised by messages of that row alone, whatever the database holds equal."""

from pathlib import Path

from sqlalchemy import text

from oncemq.ledger.database.engine import make_engine
from oncemq.testing.scopes import scope_for
from oncemq_strategies.redis_lock.fence import Fence


def test_another_spelling_raises_no_strangers_fence(tmp_path: Path) -> None:
    """Its lock is another one with numbers of its own; the comparison at the unit's end makes it a Conflict."""
    engine = make_engine(f"sqlite:///{tmp_path}/fence.db")
    with engine.begin() as connection:
        connection.execute(
            text("CREATE TABLE rides (ride VARCHAR(40) COLLATE NOCASE PRIMARY KEY, fence BIGINT)")
        )
        connection.execute(text("INSERT INTO rides VALUES ('aB3x', 3)"))
    fence = Fence(scope_for("shop.track", engine), "rides", "ride", "fence")
    assert fence.raise_now({"Ab3X": 9}) == set()
    assert fence.raise_now({"aB3x": 4}) == set()
    with engine.connect() as connection:
        assert connection.execute(text("SELECT fence FROM rides")).scalar_one() == 4
    engine.dispose()
