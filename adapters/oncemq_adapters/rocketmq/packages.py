"""Detects which of the three packages that import as `rocketmq` is installed: they overwrite each other's files."""

from collections.abc import Callable, Mapping
from importlib.metadata import PackageNotFoundError, version

from oncemq.errors import ConfigError, MissingExtra

EXTRAS: Mapping[str, str] = {
    "rocketmq-client-python": "rocketmq-native",
    "rocketmq-python-client": "rocketmq-grpc",
}
"""The extra that brings each package."""

RIVALS = ("rocketmq", *EXTRAS)


def require_package(wanted: str, installed: Callable[[str], bool] | None = None) -> None:
    """Insist that this package is installed, and no other of the same import name.

    Args:
        wanted: as it is called in the package index.
        installed: answers whether a package is; None = ask this environment.

    Raises:
        MissingExtra: it is not.
        ConfigError: others are installed over it, so that the origin of its files is unknown.
    """
    answer = installed or _installed
    present = [name for name in RIVALS if answer(name)]
    if wanted not in present:
        raise MissingExtra(f"the package {wanted!r} is not installed: pip install 'oncemq[{EXTRAS[wanted]}]'")
    others = [name for name in present if name != wanted]
    if others:
        names = " and ".join(others)
        advice = f"pip uninstall {' '.join(present)}, then pip install 'oncemq[{EXTRAS[wanted]}]'"
        text = f"the packages {wanted} and {names} are installed together, and overwrite each other's files"
        raise ConfigError([f"{text} – {advice}"])


def _installed(name: str) -> bool:
    try:
        version(name)
    except PackageNotFoundError:
        return False
    return True
