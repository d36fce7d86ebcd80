"""`make crowded` runs the same tests several times at once."""

import subprocess
import sys
from pathlib import Path

CROWDED = Path(__file__).parents[2] / "crowded.py"
MEETING = """
import time
from pathlib import Path

HERE = Path(__file__).parent


def test_it(tmp_path):
    copy = tmp_path.parent.parent.name
    (HERE / f"{copy}.came").touch()
    until = time.monotonic() + 50
    while len(list(HERE.glob("*.came"))) < 2:
        assert time.monotonic() < until, "the other copy does not run"
        time.sleep(0.01)
    assert copy != "FAILING", "an effect is missing"
"""


def crowded(folder: Path, failing: str) -> subprocess.CompletedProcess[str]:
    """Run two copies, of which the named one fails after it has met the other."""
    (folder / "test_it.py").write_text(MEETING.replace("FAILING", failing))
    return subprocess.run(
        [sys.executable, CROWDED, "--copies", "2", "--kept", "kept", "--", "-p", "no:oncemq", "test_it.py"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )


def test_copies_run_at_once_in_folders_of_their_own(tmp_path: Path) -> None:
    """Each meets the other, and nothing is kept of those that pass."""
    done = crowded(tmp_path, "none")
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "2 of 2 copies passed"), done
    assert not list((tmp_path / "kept").iterdir())


def test_a_copy_that_fails_shows_its_log(tmp_path: Path) -> None:
    """The run fails, and the log and the files of that copy are kept."""
    done = crowded(tmp_path, "2")
    assert (done.returncode, done.stdout.splitlines()[-1]) == (1, "1 of 2 copies passed"), done
    assert "copy 2 failed with exit code 1" in done.stdout
    assert "an effect is missing" in done.stdout
    assert [folder.name for folder in (tmp_path / "kept").iterdir()] == ["2"]
