"""Compares configurations of the history with each other and with the files, and writes a former one back."""

import os
import stat
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from difflib import unified_diff
from pathlib import Path

from oncemq.common.redaction import MaskedText
from oncemq.config.load import load, pinned
from oncemq.config.source.masking import filled, masked, version_of
from oncemq.engine.plan import AppPlan
from oncemq.errors import ConfigError
from oncemq.ledger.records.configurations import Configuration
from oncemq.operate.auditing import Operator, Trail
from oncemq.operate.configuration.history import kept

_SHORTEST_VERSION = 4
SAVED = ".before-rollback"
"""Ends the name of the copy of a file that a rollback replaces."""


@dataclass(frozen=True, slots=True)
class Rollback:
    """The return to a former configuration, before it is made.

    Args:
        plan: the app.
        former: the configuration.
        texts: what the files are to have, with their secrets.
        difference: from the files as they are, without secrets; empty if there is none.
    """

    plan: AppPlan
    former: Configuration
    texts: Mapping[Path, bytes]
    difference: str

    def write(self, operator: Operator) -> list[Path]:
        """Write the files, each at once, beside a copy of what it replaces; returns the copies.

        Raises:
            ConfigError: a file cannot be written; names those that were written before it.
        """
        copies = []
        for file, text in self.texts.items():
            try:
                copies.append(_replace(file.resolve(), text))
            except OSError as error:
                written = ", ".join(map(str, list(self.texts)[: len(copies)]))
                problem = f"{file}: cannot be written: {error.strerror or error}"
                advice = f"`oncemq config show {self.former.number}` prints the text"
                raise ConfigError(
                    [f"{problem}{f'; written before: {written}' if written else ''} – {advice}"]
                ) from error
        files = ", ".join(map(str, self.texts))
        Trail(self.plan, operator, "config rollback").noted(
            f"{self.former.version} into {files}", len(copies)
        )
        return copies


def chosen(plan: AppPlan, which: str | None) -> Configuration:
    """Return a configuration by its number, or by its version or a beginning of it; None = the latest that has run.

    Raises:
        ConfigError: there is none, or several begin like this.
    """
    known = kept(plan)
    if which is None:
        ran = sorted((each for each in known if each.ran), key=lambda each: each.last_at)
        if not ran:
            raise ConfigError(["the history has no text of this app yet – an app in Python has none"])
        return ran[-1]
    found = [each for each in known if str(each.number) == which or each.version == which]
    if not found and len(which) >= _SHORTEST_VERSION:
        found = [each for each in known if each.version.startswith(which)]
    if len(found) == 1 and not all(each.exact for each in found[0].texts):
        raise ConfigError(
            [f"configuration {which} was refused because it is not YAML, so its text is not kept"]
        )
    if len(found) != 1:
        names = ", ".join(f"{each.number} ({each.version})" for each in known[:10]) or "none"
        problem = "several configurations begin like" if found else "the history has no configuration"
        raise ConfigError([f"{problem} {which} – the latest are: {names}"])
    return found[0]


def present(files: Sequence[Path]) -> tuple[MaskedText, ...]:
    """Return the files as they are, without secrets.

    Raises:
        ConfigError: one cannot be read, or the app is declared in Python.
    """
    texts = pinned(files)
    if not texts:
        raise ConfigError([f"{files[0]} is an app in Python: there is no text to compare"])
    return masked(texts, os.environ)


def difference(
    old: Sequence[MaskedText], new: Sequence[MaskedText], names: tuple[str, str] = ("", "")
) -> str:
    """Return how two configurations differ, as a unified diff; empty if they do not.

    Args:
        old: the texts of the one.
        new: the texts of the other.
        names: of both, behind the names of the files.
    """
    before, after = ({each.file: each.text for each in texts} for texts in (_paired(old, new), new))
    parts: list[str] = []
    for file in {**before, **after}:
        lines = [texts.get(file, "").splitlines() for texts in (before, after)]
        labels = [f"{file} {name}".strip() for name in names]
        parts += unified_diff(lines[0], lines[1], labels[0], labels[1], lineterm="")
    return "\n".join(parts)


def rollback(plan: AppPlan, which: str, files: Sequence[Path]) -> Rollback:
    """Return what a rollback would write, checked as `oncemq check` does without connecting; nothing is changed.

    Raises:
        ConfigError: there is no such configuration, it belongs to other files, or it cannot run.
    """
    former, texts = chosen(plan, which), pinned(files)
    _insist_on_files(former, list(texts))
    whole = filled(former.texts, texts, os.environ)
    load(files, texts=whole)
    if version_of(whole) != former.version:
        raise ConfigError(
            [f"configuration {former.version} cannot be restored exactly with the secrets of the files"]
        )
    shown = difference(masked(texts, os.environ), masked(whole, os.environ), ("now", former.version))
    return Rollback(plan, former, whole, shown)


def _insist_on_files(former: Configuration, files: Sequence[Path]) -> None:
    then = [each.file for each in former.texts]
    if [Path(name).name for name in then] != [file.name for file in files]:
        these = " ".join(f"-f {name}" for name in then)
        raise ConfigError([f"configuration {former.version} was of other files – name them: {these}"])


def _paired(old: Sequence[MaskedText], new: Sequence[MaskedText]) -> Sequence[MaskedText]:
    """Return the texts under the names of their counterparts, where another host has them in another folder."""
    if [Path(each.file).name for each in old] != [Path(each.file).name for each in new]:
        return old
    return [MaskedText(ours.file, each.text, each.exact) for each, ours in zip(old, new, strict=True)]


def _replace(file: Path, text: bytes) -> Path:
    """Write a file at once, with its rights; returns the copy of what it was."""
    copy = file.with_name(file.name + SAVED)
    _write(copy, file.read_bytes(), file)
    _write(file, text, file)
    return copy


def _write(file: Path, text: bytes, like: Path) -> None:
    rights = like.stat()
    number, name = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")
    try:
        with os.fdopen(number, "wb") as stream:
            stream.write(text)
            stream.flush()
            with suppress(PermissionError):  # another user's file in a folder of ours
                os.fchown(stream.fileno(), rights.st_uid, rights.st_gid)
            os.fchmod(stream.fileno(), stat.S_IMODE(rights.st_mode))
            os.fsync(stream.fileno())
        Path(name).replace(file)
    except BaseException:
        with suppress(OSError):
            Path(name).unlink()
        raise
