"""Parses YAML bytes into a tree with positions; refuses hostile or careless YAML before it costs resources."""

import re
from collections.abc import Iterator
from typing import Any

import yaml

from oncemq.config.source.problems import Position, fail
from oncemq.config.source.scalars import resolve
from oncemq.config.source.tree import Fields, Items, Node, Scalar
from oncemq.config.source.yaml_errors import MAX_DEPTH, TOO_DEEP, explain
from oncemq.errors import ConfigError

MAX_BYTES = 1024 * 1024
MAX_NODES = 20_000

_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ufffe\uffff]")
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def parse_yaml(data: bytes, file: str) -> Fields:
    """Return the mapping in `data`.

    Raises:
        ConfigError: it is not a single plain YAML mapping; says at which line and column.
    """
    text = _decode(data, file)
    composer = _Composer(file)
    try:
        for event in _events(text):
            composer.take(event)
    except yaml.YAMLError as error:
        problem = explain(error, text, file)
    else:
        return composer.result()
    raise problem


def _events(text: str) -> Iterator[Any]:
    yield from yaml.parse(text, Loader=_Loader)


def _decode(data: bytes, file: str) -> str:
    if len(data) > MAX_BYTES:
        raise fail(
            Position(file), f"larger than {MAX_BYTES // 1024} KiB", "split it and overlay with several -f"
        )
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        where = error.start
    else:
        _refuse_control_characters(text, file)
        return text
    raise fail(_position_at(data[:where].decode("utf-8"), file), "not UTF-8", "save the file in UTF-8")


def _refuse_control_characters(text: str, file: str) -> None:
    found = _CONTROL.search(text)
    if found is not None:
        raise fail(
            _position_at(text[: found.start()], file),
            f"the control character U+{ord(found[0]):04X} cannot stand in a configuration",
            'take it out, or write it as an escape inside double quotes, like "\\x07"',
        )


def _position_at(before: str, file: str) -> Position:
    return Position(file, before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1)


class _Composer:
    """Builds the tree event by event, with a stack of its own: deep nesting cannot exhaust Python's."""

    def __init__(self, file: str) -> None:
        self._file = file
        self._root: Node | None = None
        self._open: list[_Open] = []
        self._nodes = 0

    def take(self, event: Any) -> None:
        """Add one parser event.

        Raises:
            ConfigError: it is not allowed in a configuration.
        """
        position = self._position(event)
        if isinstance(event, yaml.DocumentStartEvent) and self._root is not None:
            raise fail(
                position, "a second document begins here", "keep one document per file; overlay with -f"
            )
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None) is not None:
            raise _alias(event, position)
        if isinstance(event, yaml.NodeEvent):
            self._node(event, position)
        elif isinstance(event, yaml.SequenceEndEvent | yaml.MappingEndEvent):
            self._close()

    def result(self) -> Fields:
        """Return the document's mapping.

        Raises:
            ConfigError: the file is empty or not a mapping.
        """
        root = self._root
        if isinstance(root, Fields):
            return root
        if root is None or (isinstance(root, Scalar) and root.value is None):
            raise fail(Position(self._file), "the file is empty", "`oncemq init` writes one to begin with")
        raise fail(root.position, "the file is not a mapping", "begin with `app: your-name`")

    def _node(self, event: Any, position: Position) -> None:
        self._nodes += 1
        if self._nodes > MAX_NODES:
            raise fail(position, f"more than {MAX_NODES} values", "split it into several apps")
        if event.tag not in (None, "!"):
            raise fail(
                position,
                "a word that begins with `!` is a YAML tag, and tags are refused",
                "remove it; a text that begins with `!` needs quotes",
            )
        if isinstance(event, yaml.ScalarEvent):
            self._scalar(event, position)
        else:
            self._open_collection(event, position)

    def _open_collection(self, event: Any, position: Position) -> None:
        if len(self._open) >= MAX_DEPTH:
            raise fail(position, *TOO_DEEP)
        if self._open and self._open[-1].needs_key:
            raise fail(position, "a list or mapping cannot be a key", "write a plain word before the `:`")
        node: Node = (
            Fields({}, position) if isinstance(event, yaml.MappingStartEvent) else Items([], position)
        )
        self._add(node)
        self._open.append(_Open(node))

    def _scalar(self, event: Any, position: Position) -> None:
        top = self._open[-1] if self._open else None
        if top is not None and top.needs_key:
            self._key(top, event.value, position)
            return
        unquoted = event.implicit[0]
        self._add(Scalar(resolve(event.value) if unquoted else event.value, position, unquoted))

    def _key(self, top: "_Open", name: str, position: Position) -> None:
        fields = top.node
        if isinstance(fields, Fields) and name in fields.keys:
            raise fail(
                position,
                f"the key {name[:80]!r} stands here a second time",
                f"keep one of them; the first is in line {fields.keys[name].line}",
            )
        if isinstance(fields, Fields):
            fields.keys[name] = position
        top.key = name

    def _add(self, node: Node) -> None:
        if not self._open:
            self._root = node
            return
        self._open[-1].add(node)

    def _close(self) -> None:
        self._open.pop()

    def _position(self, event: Any) -> Position:
        mark = event.start_mark
        return Position(self._file, mark.line + 1, mark.column + 1)


class _Open:
    """A list or mapping that has not ended yet."""

    __slots__ = ("key", "node")

    def __init__(self, node: Node) -> None:
        self.node = node
        self.key: str | None = None

    @property
    def needs_key(self) -> bool:
        return isinstance(self.node, Fields) and self.key is None

    def add(self, node: Node) -> None:
        if isinstance(self.node, Items):
            self.node.items.append(node)
        elif isinstance(self.node, Fields) and self.key is not None:
            self.node.fields[self.key] = node
            self.key = None


def _alias(event: Any, position: Position) -> ConfigError:
    """Return the error for an alias without its name: an unquoted password may begin with `*` or `&`."""
    sign, kind = ("*", "an alias") if isinstance(event, yaml.AliasEvent) else ("&", "an anchor")
    return fail(
        position,
        f"a word that begins with `{sign}` is {kind} in YAML, and those are refused",
        f"put what consumers share under `defaults:` or their topic; a text that begins with `{sign}` needs quotes",
    )
