"""Defines calls to Redis: a command, or a script with its keys and arguments."""

import hashlib
from collections.abc import Sequence

Argument = str | bytes | int | float


class Script:
    """A Lua script; after its first run servers know it by its digest.

    Args:
        text: its source.
    """

    __slots__ = ("digest", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self.digest = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()


class Call:
    """One command or script for the server that holds `key`.

    Attributes:
        key: selects the server.
        words: the command's words.
        script: its text is sent when the server does not know its digest.
        wait: number of replicas that must have the write, and milliseconds to wait for them; None = do not wait.
        acknowledged: how many replicas acknowledged it in that time.
        moved_to: the place that a server named for the key; used once, for the next attempt.
    """

    __slots__ = ("_rest", "acknowledged", "key", "moved_to", "script", "wait", "words")

    def __init__(self, key: str, words: Sequence[Argument], script: Script | None = None) -> None:
        self.key = key
        self.script = script
        self.wait: tuple[int, int] | None = None
        self.acknowledged = 0
        self.moved_to: str | None = None
        self._rest = tuple(words)
        self.words: tuple[Argument, ...] = (
            self._rest if script is None else ("EVALSHA", script.digest, *self._rest)
        )

    @classmethod
    def of(cls, script: Script, keys: Sequence[str], arguments: Sequence[Argument] = ()) -> "Call":
        """Return the call of a script whose keys are all in one slot."""
        return cls(keys[0], (len(keys), *keys, *arguments), script)

    def lines(self) -> list[tuple[Argument, ...]]:
        """Return the commands to send; WAIT refers to the last write on the same connection."""
        return [self.words] if self.wait is None else [self.words, ("WAIT", *self.wait)]

    def spell_out(self) -> None:
        """Send the script's text next time."""
        if self.script is not None:
            self.words = ("EVAL", self.script.text, *self._rest)
