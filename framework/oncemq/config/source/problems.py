"""Problems of a configuration: the error, its line, and the advice."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from oncemq.common.problems import Severity
from oncemq.errors import ConfigError

_LONGEST = 1000
_ENDING = 300


@dataclass(frozen=True, slots=True)
class Position:
    """A place in a file, counted from 1; column 0 means the whole line, line 0 the whole file."""

    file: str
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        parts = (self.file, self.line, self.column)
        return ":".join(str(part) for part in parts if part)


@dataclass(frozen=True, slots=True)
class ConfigProblem:
    """One problem; as text, `file:line:column: error`, a dash, and the advice.

    Args:
        position: of the offending text.
        text: what is wrong.
        advice: what to write instead.
        severity: whether the app may start.
    """

    position: Position
    text: str
    advice: str = ""
    severity: Severity = Severity.ERROR

    def __str__(self) -> str:
        return f"{self.position}: {self.text}{f' – {self.advice}' if self.advice else ''}"


@dataclass(slots=True)
class Problems:
    """Collects all problems, so that the user can correct them in one go.

    Args:
        secrets: texts that must never be shown; masked in every problem.
    """

    secrets: set[str] = field(default_factory=set)
    found: list[ConfigProblem] = field(default_factory=list)

    def add(
        self, position: Position, text: str, advice: str = "", severity: Severity = Severity.ERROR
    ) -> None:
        """Record a problem; the same text at the same place is recorded once."""
        problem = ConfigProblem(position, self._clean(text), self._clean(advice), severity)
        if problem not in self.found:
            self.found.append(problem)

    def known_at(self, position: Position) -> bool:
        """Return whether a problem is recorded at this exact place."""
        return any(problem.position == position for problem in self.found)

    @property
    def errors(self) -> Sequence[ConfigProblem]:
        """Return the errors that keep the app from starting, in the order of the file."""
        return _sorted(problem for problem in self.found if problem.severity is Severity.ERROR)

    @property
    def warnings(self) -> Sequence[ConfigProblem]:
        """Return the warnings, in the order of the file."""
        return _sorted(problem for problem in self.found if problem.severity is Severity.WARNING)

    def raise_errors(self) -> None:
        """Raise all errors that keep the app from starting, at once.

        Raises:
            ConfigError: there is at least one error.
        """
        if self.errors:
            raise ConfigError(self.errors)

    def _clean(self, text: str) -> str:
        for secret in self.secrets:
            text = text.replace(secret, "***")
        return _shown(text)


def fail(position: Position, text: str, advice: str = "") -> ConfigError:
    """Return the error for a single problem that ends the reading."""
    return ConfigError([ConfigProblem(position, _shown(text), advice)])


def _shown(text: str) -> str:
    """Shorten a text: a value of a megabyte must not hide the error."""
    if len(text) > _LONGEST:
        text = f"{text[: _LONGEST - _ENDING]}…{text[-_ENDING:]}"
    return _printable(text)


def _printable(text: str) -> str:
    """Escape control characters, which must not reach a terminal."""
    return "".join(
        letter if letter.isprintable() or letter == "\n" else letter.encode("unicode_escape").decode("ascii")
        for letter in text
    )


def _sorted(problems: Iterable[ConfigProblem]) -> Sequence[ConfigProblem]:
    return sorted(
        problems, key=lambda problem: (problem.position.file, problem.position.line, problem.position.column)
    )
