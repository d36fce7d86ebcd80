"""Reads files of payload schemas: JSON or YAML, named by topic and version."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from oncemq.config.source.problems import ConfigProblem, Position, Problems, fail
from oncemq.config.source.tree import plain
from oncemq.config.source.yaml_text import MAX_BYTES, parse_yaml
from oncemq.errors import ConfigError
from oncemq.schemas.registry import Registered, faults, name_and_version

_ENDINGS = frozenset({".json", ".yaml", ".yml"})
_FORM = "name it after topic and version, like order.paid.v2.json, or write such an $id into it"


def read_schema_folder(folder: Path, problems: Problems) -> Iterator[Registered]:
    """Yield the schemas of a folder and the folders in it; files of other kinds are passed by.

    Args:
        folder: where they are.
        problems: receives what is wrong with a file; the others are read nevertheless.
    """
    if not folder.is_dir():
        problems.add(
            Position(str(folder)), "there is no such folder of schemas", "create it, or correct `schemas:`"
        )
        return
    for path in sorted(folder.rglob("*")):
        if path.suffix not in _ENDINGS or not path.is_file() or path.name.startswith("."):
            continue
        schema = read_schema(path, problems)
        if schema is None:
            continue
        named = _named(path, schema, problems)
        if named is not None:
            yield Registered(*named, schema, str(path))


def read_schema(path: Path, problems: Problems) -> Any:
    """Return the schema in a file; None if it cannot be used, which is reported."""
    position = Position(str(path))
    try:
        data = path.read_bytes()
        schema = _parsed(data, path) if len(data) <= MAX_BYTES else None
    except OSError as error:
        problems.add(position, f"cannot be read: {error.strerror}", "correct the path, or its permissions")
        return None
    except ConfigError as error:
        for problem in error.problems:
            if isinstance(problem, ConfigProblem):
                problems.add(problem.position, problem.text, problem.advice)
            else:
                problems.add(position, str(problem))
        return None
    if schema is None:
        problems.add(
            position, f"larger than {MAX_BYTES // 1024} KiB, or empty", "write a JSON Schema into it"
        )
        return None
    wrong = list(faults(schema))
    for text in wrong:
        problems.add(position, f"is no usable JSON Schema: {text}")
    return None if wrong else schema


def _parsed(data: bytes, path: Path) -> Any:
    if path.suffix != ".json":
        return plain(parse_yaml(data, str(path)))
    try:
        return json.loads(data.decode("utf-8-sig"), object_pairs_hook=_unique)
    except json.JSONDecodeError as error:
        problem = fail(Position(str(path), error.lineno, error.colno), f"is not JSON: {error.msg}")
    except UnicodeDecodeError:
        problem = fail(Position(str(path)), "not UTF-8", "save the file in UTF-8")
    except (ValueError, RecursionError) as error:
        problem = fail(Position(str(path)), f"is not JSON: {str(error) or 'nested too deeply'}")
    raise problem


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise ValueError(f"{name!r} stands there twice, and only one of them would count")
        found[name] = value
    return found


def _named(path: Path, schema: Any, problems: Problems) -> tuple[str, int] | None:
    """Return topic and version by the file's name and the schema's `$id`, which must agree."""
    identifier = schema.get("$id") if isinstance(schema, dict) else None
    by_name = name_and_version(path.name)
    by_id = name_and_version(identifier) if isinstance(identifier, str) else None
    if by_name and by_id and by_name != by_id:
        problems.add(
            Position(str(path)),
            f"its name says v{by_name[1]} of {by_name[0]!r}, its $id says v{by_id[1]} of {by_id[0]!r}",
            "make both the same",
        )
        return None
    if by_name is None and by_id is None:
        problems.add(Position(str(path)), "names no topic and version", _FORM)
    return by_name or by_id
