"""Levels of compatibility between the versions of a topic's payload, and what each one compares."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from oncemq.schemas.judge import Difference, Judge
from oncemq.schemas.registry import Registered


class Level(StrEnum):
    """What a new version must be able to do; `transitive` means with all earlier versions, not with the last alone."""

    NONE = "none"
    BACKWARD = "backward"
    BACKWARD_TRANSITIVE = "backward_transitive"
    FORWARD = "forward"
    FORWARD_TRANSITIVE = "forward_transitive"
    FULL = "full"
    FULL_TRANSITIVE = "full_transitive"

    @property
    def is_transitive(self) -> bool:
        """Whether a version is compared with all earlier ones."""
        return self.value.endswith("_transitive")

    @property
    def reads_older(self) -> bool:
        """Whether consumers of a version must accept bodies of earlier ones."""
        return self.value.startswith(("backward", "full"))

    @property
    def reads_newer(self) -> bool:
        """Whether consumers of earlier versions must accept bodies of a version."""
        return self.value.startswith(("forward", "full"))


@dataclass(frozen=True, slots=True)
class Comparison:
    """One version whose bodies another one must accept.

    Args:
        writer: the bodies' version.
        reader: the version by which they are read.
        differences: why they are not all accepted; none if they are.
    """

    writer: Registered
    reader: Registered
    differences: tuple[Difference, ...]

    @property
    def is_backward(self) -> bool:
        """Whether newer consumers read older bodies."""
        return self.reader.version > self.writer.version

    @property
    def breaks(self) -> bool:
        """Whether some bodies are certainly refused."""
        return any(difference.judged for difference in self.differences)


def compare(versions: Sequence[Registered], level: Level, *, undeclared: bool = True) -> Iterator[Comparison]:
    """Yield what the level demands, version by version.

    Args:
        versions: of one topic, the lowest first.
        level: of the topic.
        undeclared: bodies may have fields that their version allows without declaring them.
    """
    for at, newer in enumerate(versions):
        earlier = versions[:at] if level.is_transitive else versions[max(0, at - 1) : at]
        for older in earlier:
            if level.reads_older:
                yield _compared(older, newer, undeclared=undeclared)
            if level.reads_newer:
                yield _compared(newer, older, undeclared=undeclared)


def _compared(writer: Registered, reader: Registered, *, undeclared: bool) -> Comparison:
    judge = Judge(writer.schema, reader.schema, (writer.name, reader.name), undeclared=undeclared)
    return Comparison(writer, reader, tuple(judge.differences()))
