"""Stores of bodies: folders, memory, and what is away."""

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import uuid4

import pytest

from oncemq.errors import ClaimAltered, ClaimGone, ClaimStoreUnavailable, ConfigError, MissingExtra
from oncemq.message.claims.claim_check import ClaimCheck, expired
from oncemq.message.claims.store import MARKER, Store
from oncemq.message.envelope import Message, OutgoingMessage
from oncemq.testing.fake_clock import FakeClock


@pytest.fixture(params=["file", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    """Return an empty store."""
    return Store(f"file://{tmp_path}/bodies" if request.param == "file" else f"memory://{uuid4().hex}")


def received(message: OutgoingMessage) -> Message:
    """Return a message as a consumer gets it."""
    return Message("orders", message.body, headers=message.headers)


def test_a_body_is_fetched_as_it_was_kept(store: Store) -> None:
    """Small ones stay in their messages."""
    claims = ClaimCheck(store, over=10)
    sent = claims.outgoing(OutgoingMessage(b"x" * 11))
    assert claims.fetch(received(sent)) == b"x" * 11
    small = OutgoingMessage(b"x" * 10)
    assert claims.outgoing(small) is small


def test_a_body_is_gone_only_where_the_store_is_there(store: Store) -> None:
    """A store without its marker is away, and was not emptied by itself."""
    claims = ClaimCheck(store, over=10)
    sent = claims.outgoing(OutgoingMessage(b"x" * 11))
    (folder,) = (each for each in store.folders() if each != MARKER)
    store.delete(folder)
    store.delete(folder)
    with pytest.raises(ClaimGone, match="claim_check: keep:"):
        claims.fetch(received(sent))
    store.delete(MARKER)
    with pytest.raises(ClaimStoreUnavailable, match="the store is away"):
        claims.fetch(received(sent))


def test_no_more_than_the_size_is_read(store: Store) -> None:
    """A file that grew is altered, however large it is."""
    claims = ClaimCheck(store, over=10)
    sent = claims.outgoing(OutgoingMessage(b"x" * 11))
    (folder,) = (each for each in store.folders() if each != MARKER)
    name = Message("", sent.body).body.decode().split('"')[3]
    assert name.startswith(folder)
    store.put(name, b"x" * 100)
    assert store.get(name, 12) == b"x" * 12
    with pytest.raises(ClaimAltered, match="not the one that was sent"):
        claims.fetch(received(sent))


def test_a_file_is_whole_or_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that dies while it writes leaves nothing under the body's name."""
    store = Store(f"file://{tmp_path}")
    store.put("20261231/first", b"x")

    def fail(_descriptor: int) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(ClaimStoreUnavailable, match="no space left"):
        store.put("20261231/second", b"x")
    assert [each.name for each in (tmp_path / "20261231").iterdir()] == ["first"]


def test_a_body_is_kept_from_the_moment_it_is_due() -> None:
    """The folder's day is over only after `keep`."""
    clock = FakeClock()
    now = clock.now()
    claims = ClaimCheck(Store(f"memory://{uuid4().hex}"), over=1, keep=timedelta(days=3), clock=clock)
    for due_at, days in ((None, 4), (now + timedelta(days=30), 34), (now - timedelta(days=30), 4)):
        sent = claims.outgoing(OutgoingMessage(b"xx", due_at=due_at))
        folder = sent.body.decode().split('"')[3].partition("/")[0]
        assert folder == f"{now + timedelta(days=days):%Y%m%d}"
        assert not expired(folder, now + timedelta(days=days - 1))
        assert expired(folder, now + timedelta(days=days + 1))


def test_only_folders_of_days_expire() -> None:
    """What others keep beside them is left alone."""
    now = datetime(2026, 12, 31, tzinfo=UTC)
    for name in (MARKER, "2026", "20261231", "2026-1-1", "backups", "0000000x", ""):
        assert not expired(name, now)
    assert expired("20261230", now)


@pytest.mark.parametrize("url", ["file://", "file://bodies", "file:///a/../b", "s3://", "bodies"])
def test_a_store_that_is_no_place_is_refused(url: str) -> None:
    """With the correction."""
    with pytest.raises(ConfigError, match="write file:///folder"):
        Store(url)


def test_an_unknown_scheme_is_refused() -> None:
    """Or one whose package is missing, by its name."""
    with pytest.raises((ConfigError, MissingExtra), match="nowhere"):
        Store("nowhere://bodies")
