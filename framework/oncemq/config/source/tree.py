"""Tree of a configuration as read: values with the positions where they were written."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from oncemq.config.source.problems import Position

Path = tuple[str | int, ...]


class Expanded(str):
    """Text expanded from `${VAR}`; `scalar` is its value if written unquoted in the file."""

    __slots__ = ("scalar",)

    scalar: Any


@dataclass(slots=True)
class Scalar:
    """A single value.

    Args:
        value: the parsed value; text with `${VAR}` until variables are expanded.
        position: where it begins.
        unquoted: it may be a number, a boolean or null.
        source: the text as written, if variables were expanded; for messages, since values may be secret.
    """

    value: Any
    position: Position
    unquoted: bool = False
    source: str | None = None


@dataclass(slots=True)
class Items:
    """A list."""

    items: "list[Node]"
    position: Position


@dataclass(slots=True)
class Fields:
    """A mapping; `keys` holds where each key was written."""

    fields: "dict[str, Node]"
    position: Position
    keys: dict[str, Position] = field(default_factory=dict)

    def key_position(self, name: str) -> Position:
        """Return where the key `name` was written."""
        return self.keys.get(name, self.position)


Node = Scalar | Items | Fields


def plain(node: Node) -> Any:
    """Return `node` as dicts, lists and values, without positions."""
    match node:
        case Fields(fields):
            return {name: plain(child) for name, child in fields.items()}
        case Items(items):
            return [plain(child) for child in items]
        case Scalar(value):
            return value


def scalars(node: Node, path: Path = ()) -> Iterator[tuple[Path, Scalar]]:
    """Yield every single value below `node` with its path."""
    match node:
        case Fields(fields):
            for name, child in fields.items():
                yield from scalars(child, (*path, name))
        case Items(items):
            for index, child in enumerate(items):
                yield from scalars(child, (*path, index))
        case Scalar():
            yield path, node


def find(node: Node, path: Sequence[str | int]) -> tuple[Node, Position, Path]:
    """Return the deepest existing node on `path`, the position of its key or of itself, and its path."""
    position, found = node.position, ()
    reached: Path = found
    for step in path:
        child = _child(node, step)
        if child is None:
            break
        position = child.position
        node, reached = child, (*reached, step)
    return node, position, reached


def key_position(node: Node, path: Sequence[str | int]) -> Position:
    """Return the position of the key named by the last step of `path`."""
    parent, position, reached = find(node, path[:-1])
    if len(reached) == len(path) - 1 and isinstance(parent, Fields):
        return parent.key_position(str(path[-1]))
    return position


def from_python(value: Any, position: Position) -> Node:
    """Return the tree of an app declared in Python, every value at `position`."""
    if isinstance(value, Mapping):
        fields = {_key(name): from_python(child, position) for name, child in value.items()}
        return Fields(fields, position, dict.fromkeys(fields, position))
    if isinstance(value, list | tuple):
        return Items([from_python(child, position) for child in value], position)
    return Scalar(value, position)


def _key(name: Any) -> str:
    """Return a key as it is written in a file; a class as `module:name`."""
    return f"{name.__module__}:{name.__qualname__}" if isinstance(name, type) else str(name)


def _child(node: Node, step: str | int) -> Node | None:
    match node, step:
        case Fields(fields), _:
            return fields.get(str(step))
        case Items(items), int() if step < len(items):
            return items[step]
        case _:
            return None
