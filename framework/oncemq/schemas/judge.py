"""Judges whether each body that one schema allows is accepted by another one, and says in words why not."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from oncemq.schemas.alternatives import alternatives, exclusive
from oncemq.schemas.keywords import (
    JUDGED,
    Schema,
    Unjudged,
    constraints,
    identical,
    resolved,
)
from oncemq.schemas.values import ValueRules


@dataclass(frozen=True, slots=True)
class Difference:
    """A reason why bodies of one schema are not, or may not be, accepted by another one.

    Args:
        path: the field, such as `order.lines[].amount`; empty for the whole body.
        text: the reason, in words.
        judged: false if it cannot be told whether there is such a body.
    """

    path: str
    text: str
    judged: bool = True

    def __str__(self) -> str:
        text = self.text if self.judged else f"cannot be judged: {self.text}"
        return f"{self.path}: {text}" if self.path else text


_MOST = 50_000
"""Comparisons of one pair of schemas, after which it is too large to be judged."""


class Judge:
    """Compares what is written by one schema with what another one accepts.

    Args:
        writer: the schema of the bodies.
        reader: the schema that shall accept them.
        names: of the two, for the words: `v1`, `v2`.
        undeclared: bodies may have fields that the writer's schema allows without declaring them.
    """

    def __init__(
        self, writer: Schema, reader: Schema, names: tuple[str, str], *, undeclared: bool = True
    ) -> None:
        self._roots = (writer, reader)
        self._writes, self._reads = names
        self._undeclared = undeclared
        self._rules = ValueRules(names)
        self._open: set[tuple[int, int]] = set()
        self._assumed: set[tuple[int, int]] = set()
        self._compared = 0
        self._known: dict[tuple[int, int], list[Difference]] = {}

    def differences(self) -> list[Difference]:
        """Return every reason; none if the reader accepts all bodies of the writer."""
        return list(dict.fromkeys(self._compare(*self._roots)))

    def _compare(self, writer: Schema, reader: Schema) -> list[Difference]:
        try:
            writer, reader = resolved(writer, self._roots[0]), resolved(reader, self._roots[1])
        except Unjudged as error:
            return [Difference("", str(error), judged=False)]
        pair = (id(writer), id(reader))
        if pair in self._known:
            return self._known[pair]
        if pair in self._open:
            # A recursive type: what is asked here is being answered further up.
            self._assumed.add(pair)
            return []
        self._compared += 1
        if self._compared > _MOST:
            return [Difference("", f"more than {_MOST:,} comparisons", judged=False)]
        self._open.add(pair)
        found = self._judge(writer, reader)
        self._open.discard(pair)
        self._assumed.discard(pair)
        if not self._assumed:
            self._known[pair] = found
        return found

    def _judge(self, writer: Schema, reader: Schema) -> list[Difference]:
        if writer is False or _is_any(reader):
            return []
        if reader is False:
            return [Difference("", f"{self._writes} allows it, {self._reads} accepts none")]
        allowed = {} if writer is True else writer
        try:
            written, read = alternatives(allowed, self._roots[0]), alternatives(reader, self._roots[1])
        except Unjudged as error:
            return self._unless_same(allowed, reader, str(error))
        beyond = _unknown(read)
        if beyond:
            return self._unless_same(allowed, reader, f"`{beyond}` in {self._reads}")
        return self._each(allowed, written, read)

    def _each(
        self, allowed: Mapping[str, Any], written: list[dict[str, Any]], read: list[dict[str, Any]]
    ) -> list[Difference]:
        """Return the differences of each alternative of the writer."""
        if _is_any(allowed):
            text = f"{self._writes} allows any value, {self._reads} accepts only {_kinds(read)}"
            return [Difference("", text)]
        found = [difference for part in written for difference in self._unless(part, read)]
        if _unknown([allowed]) and "type" not in allowed and found:
            return [Difference("", f"`{_unknown([allowed])}` in {self._writes}", judged=False)]
        return found

    def _unless(self, writer: dict[str, Any], read: list[dict[str, Any]]) -> list[Difference]:
        """Return the differences of one alternative; none is certain where its schema excludes more than is known."""
        found, unknown = self._alternative(writer, read), _unknown([writer])
        if not unknown:
            return found
        unless = f", unless `{unknown}` excludes that"
        return [replace(each, text=f"{each.text}{unless}", judged=False) for each in found]

    def _unless_same(self, writer: Any, reader: Any, text: str) -> list[Difference]:
        same = identical(writer, reader) and (
            "$ref" not in repr(reader) or identical(*(_definitions(root) for root in self._roots))
        )
        return [] if same else [Difference("", text, judged=False)]

    def _alternative(self, writer: dict[str, Any], readers: list[dict[str, Any]]) -> list[Difference]:
        """Return why values of one type are not accepted by any of the reader's alternatives."""
        kind = writer["type"]
        accepting = [reader for reader in readers if reader["type"] in _wider(kind)]
        if not accepting:
            accepted = _kinds(readers) or "nothing"
            return [Difference("", f"{self._writes} allows {kind}, {self._reads} accepts only {accepted}")]
        meant = [reader for reader in accepting if not self._exclusive(writer, reader)]
        if not meant:
            return [Difference("", f"{self._reads} has no alternative for this {kind} of {self._writes}")]
        found = [self._same_type(writer, reader) for reader in meant]
        if len(found) == 1 or not all(found):
            return min(found, key=len)
        values = writer.get("enum")
        if values is not None and len(values) > 1:
            single = [writer | {"enum": [value]} for value in values]
            return [each for part in single for each in self._alternative(part, meant)]
        if values is not None and all(each.judged for part in found for each in part):
            return found[0]
        text = f"none of the {len(found)} alternatives of {self._reads} accepts every {kind} of {self._writes} by itself"
        return [Difference("", text, judged=False)]

    def _exclusive(self, writer: dict[str, Any], reader: dict[str, Any]) -> bool:
        """Return whether a field tells two objects apart, as in unions with a discriminator."""
        if writer["type"] != "object":
            return False
        try:
            return exclusive(writer, self._roots[0], reader, self._roots[1])
        except Unjudged:
            return False

    def _same_type(self, writer: dict[str, Any], reader: dict[str, Any]) -> list[Difference]:
        listed = [
            Difference("", text, judged=judged) for text, judged in self._rules.differences(writer, reader)
        ]
        if "enum" in writer or "enum" in reader:
            return listed
        if writer["type"] == "object":
            return listed + self._objects(writer, reader)
        return listed + (self._arrays(writer, reader) if writer["type"] == "array" else [])

    def _objects(self, writer: Mapping[str, Any], reader: Mapping[str, Any]) -> list[Difference]:
        declared, wanted = writer.get("properties", {}), reader.get("properties", {})
        further = writer.get("additionalProperties", True)
        if _is_any(further):
            # A type without fields of its own is a dictionary, whose keys are all that it has.
            further = self._undeclared or not declared
        accepted = reader.get("additionalProperties", True)
        missing = set(reader.get("required", ())) - set(writer.get("required", ()))
        found = [
            Difference(name, f"{self._reads} requires it, {self._writes} does not")
            for name in sorted(missing)
        ]
        for name in dict.fromkeys([*declared, *wanted]):
            if name in declared:
                inner = self._compare(declared[name], wanted.get(name, accepted))
            else:
                inner = [] if name in missing else self._undeclared_field(further, wanted[name])
            found += _below(name, inner)
        if further is True and accepted is False:
            return [
                *found,
                Difference(
                    "",
                    f"{self._writes} allows fields that it does not declare, {self._reads} accepts no others",
                ),
            ]
        return found + _below("*", self._compare(further, accepted))

    def _undeclared_field(self, further: Schema, wanted: Schema) -> list[Difference]:
        """Return why a field that only the reader declares may have a value which it does not accept."""
        found = self._compare(further, wanted)
        if further is not True or len(found) != 1 or " accepts only " not in found[0].text:
            return found
        text = f"{self._writes} allows fields that it does not declare, so this may be anything; {self._reads} accepts only "
        return [Difference("", text + found[0].text.rpartition(" accepts only ")[2])]

    def _arrays(self, writer: Mapping[str, Any], reader: Mapping[str, Any]) -> list[Difference]:
        (written, more), (read, others) = _items(writer), _items(reader)
        most = writer.get("maxItems")
        count = max(len(written), len(read))
        count = count if most is None else min(count, most)
        found: list[Difference] = []
        for at in range(count):
            item = written[at] if at < len(written) else more
            found += _below(f"[{at}]", self._compare(item, read[at] if at < len(read) else others))
        if most is None or most > count:
            found += _below("[]", self._compare(more, others))
        return found


def _unknown(schemas: Iterable[Mapping[str, Any]]) -> str:
    """Return a keyword whose effect is not known, or nothing."""
    return min((name for schema in schemas for name in constraints(schema) - JUDGED), default="")


def _is_any(schema: Schema) -> bool:
    return schema is True or (isinstance(schema, Mapping) and not constraints(schema))


def _wider(kind: str) -> tuple[str, ...]:
    return ("integer", "number") if kind == "integer" else (kind,)


def _items(schema: Mapping[str, Any]) -> tuple[list[Schema], Schema]:
    """Return the schemas of the first items, and of all others; older drafts write them differently."""
    items = schema.get("items", True)
    if isinstance(items, list):
        return items, schema.get("additionalItems", True)
    return schema.get("prefixItems", []), items


def _below(name: str, found: Iterable[Difference]) -> list[Difference]:
    return [replace(each, path=_joined(name, each.path)) for each in found]


def _joined(name: str, path: str) -> str:
    return name + path if path.startswith("[") or not path else f"{name}.{path}"


def _kinds(readers: Iterable[Mapping[str, Any]]) -> str:
    return " or ".join(dict.fromkeys(reader["type"] for reader in readers))


def _definitions(root: Schema) -> Any:
    if not isinstance(root, Mapping):
        return {}
    return {name: root[name] for name in ("$defs", "definitions") if name in root}
