"""Random histories against the strategies: no message ends twice, or in silence, alone and in every pair.

On a reference model, which is a pure function; and on real databases, where the whole engine plays them. The long form
(`make histories`) plays 1,000,000 and 10,000.
"""

import os
import random
import uuid
from collections.abc import Iterator
from contextlib import closing
from itertools import cycle, islice, product

import pytest
from sqlalchemy import Engine, create_engine, make_url, text

from oncemq.ledger import schema
from oncemq.ledger.database.engine import make_engine
from oncemq.redis import RedisClient
from oncemq.redis.connect import make_client
from support.database.shared_database import drop_database
from support.effects import Base
from support.model.histories import CHAINS, LOCKED, OUTSIDE, Reference, draw_history, wrong_with
from support.model.history_life import LEDGER, OTHER, HistoryLife, clean, play_together

ON_THE_MODEL = int(os.environ.get("ONCEMQ_HISTORIES_MODEL", "3000"))
ON_DATABASES = int(os.environ.get("ONCEMQ_HISTORIES", "36"))
FIRST = int(os.environ.get("ONCEMQ_HISTORIES_SEED", "0"))
LONG = ON_DATABASES > 36


@pytest.fixture(
    scope="module",
    params=[
        "sqlite",
        *(
            pytest.param(name, marks=pytest.mark.server)
            for name in (("postgresql", "mariadb") if LONG else ())
        ),
    ],
)
def lived(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """Lend a database with all tables."""
    if request.param == "sqlite":
        yield from _prepared(f"sqlite:///{tmp_path_factory.mktemp('histories') / 'lived.db'}")
        return
    server, name = make_url(request.getfixturevalue(f"{request.param}_url")), f"t{uuid.uuid4().hex[:10]}"
    admin = create_engine(server, isolation_level="AUTOCOMMIT")
    with admin.connect() as connection:
        connection.execute(text(f"CREATE DATABASE {name}"))
        yield from _prepared(server.set(database=name).render_as_string(hide_password=False))
        drop_database(connection, name)
    admin.dispose()


def _prepared(url: str) -> Iterator[Engine]:
    engine = make_engine(url)
    schema.create(engine, list(LEDGER))
    Base.metadata.create_all(engine)
    yield engine
    engine.dispose()


@pytest.mark.timeout(7200 if LONG else 120)
def test_no_message_of_a_history_ends_in_silence() -> None:
    """What the documents say of the strategies leaves each message exactly one end."""
    for seed, chain in zip(range(FIRST, FIRST + ON_THE_MODEL), cycle(CHAINS), strict=False):
        played = draw_history(seed)
        assert wrong_with(played, chain, Reference(chain).play(played)) == [], (seed, chain, played)


@pytest.mark.slow
@pytest.mark.timeout(7200 if LONG else 120)
def test_no_message_ends_in_silence_on_a_real_database(lived: Engine) -> None:
    """Neither does what the engine makes of the same histories, whether keys are held or not."""
    ways = cycle(product(CHAINS, (True, False)))
    for seed, (chain, hold_key) in zip(
        range(FIRST, FIRST + ON_DATABASES), islice(ways, FIRST, None), strict=False
    ):
        played = draw_history(seed)
        ends = HistoryLife(lived, played, chain, hold_key=hold_key).play()
        assert wrong_with(played, chain, ends) == [], (seed, chain, hold_key, played, ends)


@pytest.fixture
def redis(redis_url: str) -> Iterator[RedisClient]:
    """Return a Redis."""
    with closing(make_client(redis_url)) as client:
        yield client


@pytest.mark.server
@pytest.mark.slow
@pytest.mark.timeout(7200 if LONG else 120)
@pytest.mark.parametrize("chains", [LOCKED, OUTSIDE], ids=["locked", "outside"])
def test_no_message_ends_in_silence_under_a_lock_or_outside(
    lived: Engine, redis: RedisClient, chains: tuple[tuple[str, ...], ...]
) -> None:
    """Chains with a lock in Redis, and those for effects outside the database, leave each message exactly one end, too."""
    for seed, chain in zip(range(FIRST, FIRST + ON_DATABASES // 2), cycle(chains), strict=False):
        played = draw_history(seed)
        clean(lived)
        life = HistoryLife(lived, played, chain, hold_key=chains is LOCKED and seed % 2 == 1, redis=redis)
        assert wrong_with(played, chain, life.play()) == [], (seed, chain, played)


@pytest.mark.slow
@pytest.mark.timeout(7200 if LONG else 120)
def test_two_consumers_of_the_messages_do_not_notice_each_other(lived: Engine) -> None:
    """Each with a chain and columns of its own leaves each message exactly one end, on the same rows."""
    for seed in range(FIRST, FIRST + max(ON_DATABASES // 4, 4)):
        draw, played = random.Random(seed), draw_history(seed)
        chains = draw.choice(CHAINS), draw.choice(CHAINS)
        clean(lived)
        both = play_together(
            *(
                HistoryLife(lived, played, chain, hold_key=draw.random() < 0.5, own=own)
                for chain, own in zip(chains, ("", OTHER), strict=True)
            )
        )
        for chain, ends in zip(chains, both, strict=True):
            assert wrong_with(played, chain, ends) == [], (seed, chains, played, both)
