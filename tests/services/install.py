"""Decides where a missing server comes from: Debian's packages, else Docker, else a person."""

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from services.container import docker_works
from services.errors import ServiceError
from services.server import Server

SCRIPT = Path(__file__).with_name("install.sh")


def ensure_installed(kinds: Sequence[type[Server]]) -> None:
    """Install what is missing, or make sure that Docker can stand in; else say what a person must install."""
    missing = [kind for kind in kinds if not kind.installed()]
    if not missing:
        return
    packages = list(dict.fromkeys(package for kind in missing for package in kind.packages))
    become_root = _apt_prefix()
    if become_root is not None:
        print(f"installing {' '.join(packages)} (their own services are not started)", flush=True)
        _install([*become_root, str(SCRIPT), *packages])
    missing = [kind for kind in missing if not kind.installed()]
    if missing and not (all(kind.in_container for kind in missing) and docker_works()):
        raise ServiceError(
            f"Not installed: {', '.join(kind.kind for kind in missing)}. Neither apt-get (as root or with sudo that asks "
            "nothing) nor Docker Compose can be used here. Install the programs yourself; on Debian and Ubuntu:\n"
            f"    sudo {SCRIPT} {' '.join(packages)}\n"
            "or start Docker, then run `make services` again. Without servers: `make test-embedded`."
        )


def install_packages(*packages: str) -> bool:
    """Install Debian packages where that is permitted; returns whether it was."""
    become_root = _apt_prefix()
    if become_root is not None:
        _install([*become_root, str(SCRIPT), *packages])
    return become_root is not None


def _apt_prefix() -> list[str] | None:
    """Return the command in front of an installation, or None where we may not install."""
    if shutil.which("apt-get") is None:
        return None
    if os.geteuid() == 0:
        return []
    if shutil.which("sudo") is None:
        return None
    asked = subprocess.run(["sudo", "-n", "true"], stdin=subprocess.DEVNULL, capture_output=True, check=False)
    return ["sudo", "-n"] if asked.returncode == 0 else None


def _install(command: Sequence[str]) -> None:
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
        text=True,
    )
    if done.returncode != 0:
        raise ServiceError(f"Installing failed ({' '.join(command)}):\n{done.stdout[-3000:]}")
