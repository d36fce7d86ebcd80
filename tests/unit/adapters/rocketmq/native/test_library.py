"""librocketmq is found where it was named or fetched, else the error says what to do."""

import zipfile
from pathlib import Path

import pytest

from oncemq.errors import OnceMQError
from oncemq_adapters.librocketmq.fetching import fetch
from oncemq_adapters.librocketmq.library import NAME, cache_folder, find, load


def test_option_wins_over_the_environment(tmp_path: Path) -> None:
    """A file named in the options is taken, whatever the environment says."""
    named = tmp_path / "mine.so"
    named.touch()
    assert find(str(named), {"ROCKETMQ_LIBRARY": "/nowhere"}) == str(named)


def test_named_file_that_is_missing_is_an_error() -> None:
    """What was named is never replaced by something else that is there."""
    with pytest.raises(FileNotFoundError, match="ROCKETMQ_LIBRARY names '/nowhere'"):
        find(None, {"ROCKETMQ_LIBRARY": "/nowhere"})


def test_fetched_library_is_found(tmp_path: Path) -> None:
    """Without a name, the user's cache folder is looked into."""
    environment = {"XDG_CACHE_HOME": str(tmp_path)}
    (cache_folder(environment)).mkdir(parents=True)
    (cache_folder(environment) / NAME).touch()
    assert find(None, environment).endswith(NAME)


def test_file_that_is_no_library_is_refused(tmp_path: Path) -> None:
    """Something else than a library ends as an error that says what to do."""
    (tmp_path / NAME).write_text("no library")
    with pytest.raises(ImportError, match="fetch-library"):
        load(str(tmp_path / NAME))


def test_other_wheel_is_not_unpacked(tmp_path: Path) -> None:
    """A wheel with another digest is refused, and nothing is put in place."""
    wheel = tmp_path / "rocketmq-0.4.4.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("rocketmq/librocketmq.so", b"other")
    with pytest.raises(OnceMQError, match="SHA-256"):
        fetch(tmp_path / "cache", wheel)
    assert not (tmp_path / "cache").exists()
