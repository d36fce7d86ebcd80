"""Reads files into one tree: parses, overlays, expands variables, collects secrets."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from oncemq.common.redaction import MIN_KNOWN_SECRET, is_secret_name
from oncemq.config.source.problems import Position, Problems, fail
from oncemq.config.source.secrets import secrets_in_url
from oncemq.config.source.tree import Fields, Node, Scalar, scalars
from oncemq.config.source.variables import expand
from oncemq.config.source.yaml_text import MAX_BYTES, parse_yaml


def overlay(base: Fields, upper: Fields) -> Fields:
    """Return `base` overlaid with `upper`; `name: null` in `upper` removes the name."""
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


def read_texts(files: Sequence[Path]) -> dict[Path, bytes]:
    """Return the files as they are now.

    Raises:
        ConfigError: a file cannot be read.
    """
    return {file: _read(file) for file in files}


def read_tree(
    files: Sequence[Path],
    environment: Mapping[str, str],
    problems: Problems,
    texts: Mapping[Path, bytes] | None = None,
) -> Fields:
    """Return the files merged in order; the last one wins.

    Args:
        files: the base first.
        environment: variables.
        problems: the collection to add to.
        texts: of files, as they were read before; the others are read.

    Raises:
        ConfigError: a file cannot be read or is not a plain YAML mapping.
    """
    known = texts or {}
    trees = [parse_yaml(known[file] if file in known else _read(file), str(file)) for file in files]
    tree = trees[0]
    for upper in trees[1:]:
        tree = overlay(tree, upper)
    expand(tree, environment, problems)
    note_secrets(tree, problems)
    return tree


def note_secrets(tree: Fields, problems: Problems) -> None:
    """Pass the texts that must never be shown to `problems`."""
    for path, scalar in scalars(tree):
        value = scalar.value
        if not isinstance(value, str):
            continue
        # Below brokers, topics and consumers the second step is a name chosen by the user.
        named = path[1:] if path[0] in {"database", "redis"} else path[2:]
        if any(isinstance(step, str) and is_secret_name(step) for step in named):
            _note(str(value), problems)
        if "://" in value:
            for secret in secrets_in_url(str(value)):
                _note(secret, problems)


def _note(secret: str, problems: Problems) -> None:
    if len(secret) >= MIN_KNOWN_SECRET:
        problems.secrets.add(secret)


def _read(file: Path) -> bytes:
    position = Position(str(file))
    try:
        with file.open("rb") as stream:
            return stream.read(MAX_BYTES + 1)
    except FileNotFoundError:
        problem = fail(
            position, "there is no such file", "name yours with -f, or let `oncemq init` write one"
        )
    except IsADirectoryError:
        problem = fail(position, "is a folder", f"name the file: {file / 'app.yaml'}")
    except OSError as error:
        problem = fail(position, f"cannot be read: {error.strerror}", "check the file's permissions")
    raise problem
