"""The file with the servers' URLs, which a shell reads as well: `set -a; . .services/env; set +a`."""

import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path


def read(file: Path) -> dict[str, str]:
    """Return the variables of a file; none if there is no such file."""
    lines = file.read_text().splitlines() if file.exists() else []
    pairs = (line.partition("=") for line in lines if "=" in line)
    return {variable: "".join(shlex.split(value)) for variable, _, value in pairs}


def add(file: Path, urls: Mapping[str, str]) -> None:
    """Add variables; the values carry passwords, so only we may read the file."""
    file.touch(mode=0o600)
    _write(file, read(file) | dict(urls))


def remove(file: Path, variables: Iterable[str]) -> None:
    """Take out variables, and the file with the last one."""
    if file.exists():
        gone = set(variables)
        _write(file, {variable: value for variable, value in read(file).items() if variable not in gone})


def _write(file: Path, values: Mapping[str, str]) -> None:
    if not values:
        file.unlink()
        return
    file.write_text("".join(f"{variable}={shlex.quote(value)}\n" for variable, value in values.items()))
