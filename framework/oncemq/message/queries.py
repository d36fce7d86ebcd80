"""JMESPath over a whole message: checked when an expression is compiled, so that nothing fails later."""

from collections.abc import Callable, Iterator
from typing import Any, Final

import jmespath
from jmespath.exceptions import JMESPathError, LexerError, ParseError
from jmespath.functions import Functions

from oncemq.message.envelope import Message
from oncemq.registry import did_you_mean

ROOTS: Final = ("body", "headers", "keys", "message_id", "topic")
"""Roots of an expression."""

Query = Callable[[Message, Any], Any]

_FIRST_CHILD_ONLY: Final = frozenset(
    {
        "subexpression",
        "index_expression",
        "projection",
        "value_projection",
        "filter_projection",
        "flatten",
        "pipe",
    }
)


def require_root(root: str, text: str) -> None:
    """Check that a message has a `root`.

    Raises:
        ValueError: it does not; suggests the intended name.
    """
    if root not in ROOTS:
        hint = f"; for a field of the body write body.{text}" if "." not in text else ""
        raise ValueError(
            f"{text!r} starts with {root!r}, which a message does not have{did_you_mean(root, list(ROOTS))}{hint}"
        )


def compile_query(text: str) -> Query:
    """Return the JMESPath expression `text` as a function of a message and its decoded body.

    Raises:
        ValueError: it is not JMESPath, starts with a name that a message does not have, or calls an unknown
            function.
    """
    if not text:
        raise ValueError("an expression is empty: write something like body.order_id")
    try:
        compiled = jmespath.compile(text)
    except ParseError as error:
        raise ValueError(f"{text!r} is not an expression: {_reason(error)}") from None
    except (JMESPathError, ValueError, RecursionError):
        raise ValueError(f"{text!r} is not an expression that JMESPath understands") from None
    for name in _roots(compiled.parsed):
        require_root(name, text)
    _require_functions(compiled.parsed, text)

    def query(message: Message, body: Any) -> Any:
        whole = {
            "body": body,
            "headers": dict(message.headers),
            "keys": list(message.keys),
            "message_id": message.message_id,
            "topic": message.topic,
        }
        try:
            return compiled.search(whole)
        except Exception:
            # A message of another shape than the expression expects is a data problem, not our error.
            return None

    return query


def _reason(error: ParseError) -> str:
    place = f"at character {error.lex_position + 1}"
    if isinstance(error, LexerError):
        return f"unexpected text {place}"
    return f"unexpected {error.token_value!r} {place}" if error.token_value else "it ends too early"


def roots_of(text: str) -> frozenset[str]:
    """Return the names that a JMESPath expression looks up in the message itself."""
    return frozenset(_roots(jmespath.compile(text).parsed))


def _roots(node: Any) -> Iterator[str]:
    """Yield the names that are looked up in the message itself."""
    kind, children = node["type"], node.get("children", ())
    if kind == "field":
        yield node["value"]
    elif kind == "expref":
        return
    else:
        for child in children[:1] if kind in _FIRST_CHILD_ONLY else children:
            yield from _roots(child)


def _require_functions(node: Any, text: str) -> None:
    if node["type"] == "function_expression":
        _require_function(node["value"], len(node["children"]), text)
    for child in node.get("children", ()):
        # The bounds of a slice are plain numbers.
        if isinstance(child, dict):
            _require_functions(child, text)


def _require_function(name: str, arguments: int, text: str) -> None:
    known = Functions.FUNCTION_TABLE
    if name not in known:
        raise ValueError(f"{text!r} calls the unknown function {name!r}{did_you_mean(name, list(known))}")
    signature = known[name]["signature"]
    variadic = bool(signature) and signature[-1].get("variadic", False)
    if arguments < len(signature) or (arguments > len(signature) and not variadic):
        raise ValueError(f"{text!r} gives {name}() {arguments} arguments, it takes {len(signature)}")
