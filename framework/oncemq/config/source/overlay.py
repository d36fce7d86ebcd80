"""Several files as one: mappings merge deeply, lists and single values of the later file replace."""

from oncemq.config.source.tree import Fields, Node, Scalar


def overlay(base: Fields, upper: Fields) -> Fields:
    """Return `base` with `upper` laid over it; `name: null` in `upper` takes the name away."""
    merged = Fields(dict(base.fields), base.position, dict(base.keys))
    for name, node in upper.fields.items():
        if isinstance(node, Scalar) and node.unquoted and node.value is None:
            merged.fields.pop(name, None)
            merged.keys.pop(name, None)
            continue
        merged.fields[name] = _over(merged.fields.get(name), node)
        merged.keys[name] = upper.key_position(name)
    return merged


def _over(base: Node | None, upper: Node) -> Node:
    if isinstance(base, Fields) and isinstance(upper, Fields):
        return overlay(base, upper)
    return upper
