"""Problems that checks find: how severe, what is wrong, and what to do about it."""

from dataclasses import dataclass
from enum import StrEnum


class Severity(StrEnum):
    """An error keeps the app from starting; a warning is logged at every start."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True)
class Problem:
    """One unsafe setting, with advice on what to change.

    Args:
        text: what is wrong.
        advice: what to write instead.
        where: the dotted path in the configuration, relative to the consumer, such as `strategies[0].keep`.
        severity: whether the app may start.
    """

    text: str
    advice: str = ""
    where: str = ""
    severity: Severity = Severity.ERROR

    def __str__(self) -> str:
        return f"{self.where + ': ' if self.where else ''}{self.text}{' – ' + self.advice if self.advice else ''}"
