"""The commands start, stop and status, for all servers of a checkout."""

import argparse
import fcntl
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from services import catalog, environment
from services.container import Container
from services.errors import ServiceError
from services.install import ensure_installed
from services.server import Server

Kinds = Sequence[type[Server]]


def main() -> int:
    """Run the command named on the command line and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m services", description=__doc__)
    parser.add_argument("command", choices=("start", "stop", "status"))
    parser.add_argument(
        "--folder", type=Path, default=catalog.FOLDER, help="where data, ports and logs are kept"
    )
    parser.add_argument(
        "--only", nargs="+", choices=[kind.kind for kind in catalog.KINDS], help="these servers alone"
    )
    arguments = parser.parse_args()
    kinds = [kind for kind in catalog.KINDS if kind.kind in (arguments.only or kind.kind)]
    command = {"start": start, "stop": stop, "status": status}[arguments.command]
    try:
        with _one_at_a_time(arguments.folder):
            command(arguments.folder, kinds)
    except ServiceError as error:
        print(f"services: {error}", file=sys.stderr)
        return 1
    return 0


def start(folder: Path, kinds: Kinds) -> None:
    """Install what is missing, start what does not run, write the URLs."""
    ensure_installed(kinds)
    own = catalog.OwnServers(folder)
    for server in own.abandoned():
        own.remove(server)
        print(f"{server.folder.name}: left by a test run that died, removed")
    servers = catalog.shared(folder, kinds)
    with ThreadPoolExecutor(len(servers)) as pool:
        for line in pool.map(_start, servers):
            print(line, flush=True)
    environment.add(folder / "env", {name: url for server in servers for name, url in server.urls.items()})
    print(f"URLs are in {folder / 'env'}")


def stop(folder: Path, kinds: Kinds) -> None:
    """Stop everything that a start or a dead test run left, and remove its data."""
    own = catalog.OwnServers(folder)
    for server in own.abandoned():
        own.remove(server)
        print(f"{server.folder.name}: removed")
    for kind in kinds:
        if (folder / kind.kind).exists():
            server = catalog.make(kind, folder / kind.kind)
            environment.remove(folder / "env", server.urls)
            server.remove()
            print(f"{kind.kind}: stopped, data removed")


def status(folder: Path, kinds: Kinds) -> None:
    """Say what runs."""
    for kind in kinds:
        running = (folder / kind.kind).exists() and catalog.make(kind, folder / kind.kind).running
        print(f"{kind.kind}: {'running' if running else 'not running'}")


def _start(server: Server | Container) -> str:
    server.choose_other_ports_if_taken()
    ran = server.running
    server.start()
    return f"{server.kind}: {'already running' if ran else 'started'} on port {server.port}"


@contextmanager
def _one_at_a_time(folder: Path) -> Iterator[None]:
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


if __name__ == "__main__":
    sys.exit(main())
