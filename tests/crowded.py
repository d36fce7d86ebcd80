"""Runs copies of the same tests side by side: what depends on the order of processes shows on busy cores.

    python tests/crowded.py [--copies 5] [--kept .services/crowded] -- <arguments of pytest>

Every copy has a folder of its own for temporary files and a log; both are kept of a copy that fails, and the end of its log is
printed. All of them share the servers. The exit code is 1 where one has failed.
"""

import argparse
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

SHOWN = 60
"""Lines of a log."""


@dataclass
class Copy:
    """One run of the tests.

    Args:
        number: from 1.
        folder: where its log and its temporary files are.
        process: pytest.
    """

    number: int
    folder: Path
    process: subprocess.Popen[bytes]

    @classmethod
    def start(cls, number: int, folder: Path, arguments: Sequence[str]) -> "Copy":
        """Start it in an empty folder."""
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            f"--basetemp={folder / 'temporary'}",
        ]
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(
                [*command, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        return cls(number, folder, process)

    def close(self) -> bool:
        """Wait for its end, and say what became of it; returns whether it passed."""
        code = self.process.wait()
        lines = (self.folder / "log").read_text(errors="replace").splitlines()
        if code == 0:
            print(f"copy {self.number}: {lines[-1] if lines else 'passed'}", flush=True)  # noqa: T201
            shutil.rmtree(self.folder)
            return True
        print(f"\ncopy {self.number} failed with exit code {code}: {self.folder / 'log'}", flush=True)  # noqa: T201
        print("\n".join(lines[-SHOWN:]), flush=True)  # noqa: T201
        return False

    def kill(self) -> None:
        """End it with what it has started in its session."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


def main(copies: int, kept: Path, arguments: Sequence[str]) -> int:
    """Run all copies at once; returns the exit code."""
    running = [Copy.start(number, kept / str(number), arguments) for number in range(1, copies + 1)]
    try:
        failed = [copy.number for copy in running if not copy.close()]
    finally:
        for copy in running:
            copy.kill()
    print(f"\n{copies - len(failed)} of {copies} copies passed")  # noqa: T201
    return 1 if failed else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--copies", type=int, default=5, help="how many run at once")
    parser.add_argument("--kept", type=Path, default=Path(".services", "crowded"), help="where logs are kept")
    parser.add_argument("arguments", nargs="+", help="of pytest, after --")
    given = parser.parse_args()
    sys.exit(main(given.copies, given.kept.resolve(), given.arguments))
