"""The page of locks: those of the app's consumers, with holders and remaining time, on a real Redis and a cluster."""

import json
import re
from collections.abc import Callable, Iterator
from html import unescape
from types import ModuleType
from typing import Any

import pytest

from oncemq.dashboard.pages import locks as page
from oncemq.redis import RedisClient
from oncemq.redis.call import Argument
from oncemq.redis.connect import make_client
from oncemq_strategies.redisson import ExpirableSemaphore, Lock, ReadWriteLock, Semaphore
from oncemq_strategies.redisson.survey import locks as survey
from oncemq_strategies.redisson.survey.locks import all_held
from support.apps.command_line import CommandLine
from unit.dashboard.conftest import Visitor

LOCKING = """
from typing import Annotated

from sqlalchemy.orm import Session

from oncemq_strategies.redisson import ExpirableSemaphore, ReadWriteLock, Semaphore


def locking(
    body: dict,
    session: Session,
    prices: Annotated[ReadWriteLock, "{fresh}-prices"],
    permits: Annotated[ExpirableSemaphore, "{fresh}-permits", 3],
    number: Annotated[Semaphore, "{fresh}-number", 4],
) -> None: ...
"""


@pytest.fixture
def client(any_redis_url: str) -> Iterator[RedisClient]:
    """Return a client of another program."""
    client = make_client(any_redis_url)
    yield client
    client.close()


def visit(line: CommandLine, url: str, name: str) -> Visitor:
    """Return a visitor of the app, whose consumer `award` locks by this name."""
    text = line.app.read_text().replace(
        'award: {topic: order.paid, handler: "handlers:award"}',
        f'award: {{topic: order.paid, handler: "handlers:award", strategies: [{{redis_lock: {{name: {json.dumps(name)}}}}}, unique_key]}}',
    )
    line.app.write_text(f"{text}redis: {{url: {json.dumps(url)}}}\n")
    return Visitor(line)


@pytest.fixture
def shown(line: CommandLine, any_redis_url: str) -> Iterator[Callable[[str], list[list[str]]]]:
    """Return a function that returns the rows of the page of an app that locks by this name."""
    visitors: list[Visitor] = []

    def rows(name: str) -> list[list[str]]:
        if not visitors:
            visitors.append(visit(line, any_redis_url, name))
        found = re.findall(r"<tr>(<td>.*?)</tr>", visitors[0].see("/locks"))
        return [[unescape(cell) for cell in re.findall(r"<td[^>]*>(.*?)</td>", row)] for row in found]

    yield rows
    for visitor in visitors:
        visitor.site.close()


def test_held_locks_of_a_consumer_are_listed(
    shown: Callable[[str], list[list[str]]], client: RedisClient, fresh: str
) -> None:
    """By name, with holder and remaining time; other locks are not this app's."""
    with Lock(client, f"{fresh}-b") as lock, Lock(client, f"{fresh}-a"), Lock(client, f"other-{fresh}"):
        first, second = shown(f"{fresh}-{{key}}")
    assert first[:4] == ["award", f"{fresh}-a", "lock", lock.owner]
    assert second[:4] == ["award", f"{fresh}-b", "lock", lock.owner]
    assert 0 < float(first[4].removesuffix(" s")) <= 30
    assert shown("") == []


def test_what_handlers_lock_is_listed(
    line: CommandLine, any_redis_url: str, client: RedisClient, fresh: str
) -> None:
    """Each reader, each permit with what is left, and the semaphore whose permits have no owners."""
    (line.app.parent / f"{fresh}.py").write_text(LOCKING.format(fresh=fresh))
    line.app.write_text(
        line.app.read_text().replace(
            'consumers:\n  award: {topic: order.paid, handler: "handlers:award"',
            f'consumers:\n  award: {{topic: order.paid, handler: "{fresh}:locking"',
            1,
        )
        + f"redis: {{url: {json.dumps(any_redis_url)}}}\n"
    )
    site = Visitor(line)
    permits = ExpirableSemaphore(client, f"{fresh}-permits", permits=3)
    Semaphore(client, f"{fresh}-number", permits=4).acquire()
    with ReadWriteLock(client, f"{fresh}-prices").read as reader, permits as permit:
        found = re.findall(r"<tr>(<td>.*?)</tr>", site.see("/locks"))
    rows = [[unescape(cell) for cell in re.findall(r"<td[^>]*>(.*?)</td>", row)] for row in found]
    assert sorted((row[1], row[2], row[3], row[6]) for row in rows) == [
        (f"{fresh}-number", "semaphore", "–", "3"),
        (f"{fresh}-permits", "permit", permit.id, "2"),
        (f"{fresh}-prices", "read lock", reader.owner, ""),
    ]
    site.site.close()


def test_characters_of_patterns_in_a_name_are_plain(
    shown: Callable[[str], list[list[str]]], client: RedisClient, fresh: str
) -> None:
    """A name with brackets or stars lists its own locks, and not those that its text would match as a pattern."""
    with Lock(client, f"{fresh}[1]*-a"), Lock(client, f"{fresh}1x-a"):
        rows = shown(f"{fresh}[1]*-{{key}}")
    assert [row[1] for row in rows] == [f"{fresh}[1]*-a"]


def test_a_lock_that_redis_names_twice_is_one_row(
    shown: Callable[[str], list[list[str]]], client: RedisClient, fresh: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SCAN may return a key again, in the same step or in a later one; `oncemq locks list` counts it once, too."""
    scan = RedisClient.at

    def again(client: RedisClient, place: str, *words: Argument) -> Any:
        """Return each key of a step twice, and the first step again."""
        if words[0] != "SCAN":
            return scan(client, place, *words)
        cursor, keys = scan(client, place, *words)
        first = scan(client, place, words[0], "0", *words[2:])[1]
        return cursor, [*keys, *keys, *first]

    monkeypatch.setattr(RedisClient, "at", again)
    with Lock(client, f"{fresh}-a"), Lock(client, f"{fresh}-b"):
        assert [row[1] for row in shown(f"{fresh}-{{key}}")] == [f"{fresh}-a", f"{fresh}-b"]
        assert sorted(held.name for held in all_held(client, f"{fresh}-*")) == [f"{fresh}-a", f"{fresh}-b"]


def test_a_hostile_name_is_text(
    shown: Callable[[str], list[list[str]]], client: RedisClient, fresh: str
) -> None:
    """A key may be in the name of a lock."""
    with Lock(client, f"{fresh}-<script>alert(1)</script>"):
        rows = shown(f"{fresh}-{{key}}")
    assert [row[1] for row in rows] == [f"{fresh}-<script>alert(1)</script>"]


@pytest.mark.server
@pytest.mark.parametrize(("module", "name"), [(page, "MOST"), (survey, "MOST_STEPS")])
def test_a_page_says_when_there_may_be_more(
    line: CommandLine,
    redis_url: str,
    fresh: str,
    monkeypatch: pytest.MonkeyPatch,
    module: ModuleType,
    name: str,
) -> None:
    """It shows a number of locks, and looks at a number of keys."""
    said = "There may be more"
    client, visitor = make_client(redis_url), visit(line, redis_url, f"{fresh}-{{key}}")
    with Lock(client, f"{fresh}-a"), Lock(client, f"{fresh}-b"):
        assert said not in visitor.see("/locks")
        monkeypatch.setattr(module, name, 1)
        assert said in visitor.see("/locks")
    client.close()
    visitor.site.close()


def test_a_redis_that_is_away_is_said(line: CommandLine) -> None:
    """The page says whose locks are not known, and has no traceback."""
    visitor = visit(line, "redis://127.0.0.1:1/0", "lock-{key}")
    text = visitor.see("/locks")
    assert "award: " in text
    assert "127.0.0.1:1" in text
    visitor.site.close()


def test_an_app_without_locks_says_so(visitor: Visitor) -> None:
    """In both languages."""
    assert "No consumer of this app takes locks" in visitor.see("/locks")
    assert "redis_lock" in visitor.see("/locks?lang=zh")
