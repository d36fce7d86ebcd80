"""The history of configurations: texts once, starts together, bounds."""

from dataclasses import replace

import pytest
from sqlalchemy import Engine, func, select

from oncemq.common.redaction import MaskedText
from oncemq.ledger.records import configurations
from oncemq.ledger.records.configurations import REFUSED, TAKEN_OVER, Note

START = Note("shop", "v1", "web-1", "web-1-7", "start", "root@web-1")
RELOAD = replace(START, occasion="oncemq reload", who="alice", why="more", request=7, outcome=TAKEN_OVER)


def _add(engine: Engine, note: Note, text: str | None = None) -> int | None:
    texts = [] if note.version == "in Python" else [MaskedText("app.yaml", text or note.version, exact=True)]
    with engine.begin() as connection:
        return configurations.add(connection, note, texts)


def _notes(engine: Engine, limit: int = 100) -> list[Note]:
    with engine.connect() as connection:
        return configurations.notes(connection, "shop", limit)


def _versions(engine: Engine) -> list[str]:
    with engine.connect() as connection:
        return [each.version for each in configurations.kept(connection, "shop")]


def test_a_text_is_kept_once_with_all_that_became_of_it(engine: Engine) -> None:
    """Under one number, whatever process and however often; notes come newest first, apps apart."""
    problem = "consumers.judge: strategies cannot change \N{SNOWMAN}"
    first = _add(engine, START)
    refused = replace(RELOAD, version="v2", outcome=REFUSED, problems=(problem, "and more"))
    second = _add(engine, refused)
    assert _add(engine, RELOAD) == first
    _add(engine, replace(START, app="other"))
    found = _notes(engine)
    assert [replace(each, at=None) for each in found] == [
        replace(RELOAD, configuration=first),
        replace(refused, configuration=second),
        replace(START, configuration=first),
    ]
    assert all(each.at is not None and each.at.tzinfo is not None for each in found)
    assert len(_notes(engine, limit=1)) == 1
    with engine.connect() as connection:
        newest, oldest = configurations.kept(connection, "shop")
        answers = configurations.notes(connection, "shop", 100, request=7)
    assert [newest.ran, oldest.ran] == [False, True]
    assert oldest.texts == (MaskedText("app.yaml", "v1", exact=True),)
    assert oldest.first_at < oldest.last_at
    assert [each.outcome for each in answers] == [TAKEN_OVER, REFUSED]


def test_starts_with_the_same_text_are_one_line(engine: Engine) -> None:
    """A process that dies and is started for hours does not drive out what happened before."""
    for process in ("web-1-8", "web-1-9"):
        _add(engine, replace(START, process=process))
    _add(engine, replace(START, host="web-2"))
    _add(engine, replace(START, process="web-1-10"))
    _add(engine, replace(START, version="v2"))
    _add(engine, START)
    assert [(each.version, each.host, each.times, each.process) for each in _notes(engine)] == [
        ("v1", "web-1", 1, "web-1-7"),
        ("v2", "web-1", 1, "web-1-7"),
        ("v1", "web-2", 1, "web-1-7"),
        ("v1", "web-1", 3, "web-1-10"),
    ]


def test_an_app_in_python_has_notes_and_no_text(engine: Engine) -> None:
    """There is no text."""
    assert _add(engine, replace(START, version="in Python")) is None
    assert _versions(engine) == []
    assert [each.configuration for each in _notes(engine)] == [None]


def test_what_has_run_stays_longer_than_what_was_refused(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The oldest go, by their last use, and of the notes the oldest."""
    monkeypatch.setattr(configurations, "KEPT", 2)
    monkeypatch.setattr(configurations, "KEPT_REFUSED", 1)
    monkeypatch.setattr(configurations, "KEPT_NOTES", 4)
    for version in ("v1", "v2"):
        _add(engine, replace(RELOAD, version=version))
    for version in ("bad1", "bad2", "bad3"):
        _add(engine, replace(RELOAD, version=version, outcome=REFUSED))
    assert _versions(engine) == ["bad3", "v2", "v1"]
    _add(engine, replace(RELOAD, version="v1"))
    _add(engine, replace(RELOAD, version="v3"))
    assert _versions(engine) == ["v3", "bad3", "v1"]
    assert [each.version for each in _notes(engine)] == ["v3", "v1", "bad3", "bad2"]
    with engine.connect() as connection:
        assert connection.scalar(select(func.count()).select_from(configurations.NOTES)) == 4
