"""Starts the program: at once, or below a minimal init process where it would be process 1 of a container."""

import sys

from oncemq.common.process_one import leave_process_one

_WINDOWS = "win32"
_UNSUPPORTED = (
    "oncemq runs on Linux and macOS; on Windows its worker processes lack file locks and POSIX signals: "
    "use WSL 2 or a container"
)


def main() -> None:
    """Run the command line; never returns."""
    if sys.platform == _WINDOWS:
        sys.exit(_UNSUPPORTED)
    leave_process_one()
    # Process 1 needs none of it, and the imports take a second.
    from oncemq.cli.main import main as run  # noqa: PLC0415

    run()
