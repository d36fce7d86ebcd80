"""Converts a decoded body to the type of a handler's annotation, and explains why it does not fit."""

import json
from collections.abc import Callable
from typing import Any, Final

from pydantic import PydanticSchemaGenerationError, PydanticUserError, TypeAdapter, ValidationError
from pydantic.errors import PydanticUndefinedAnnotation

from oncemq.errors import InvalidPayload

Validate = Callable[[Any], Any]
"""Converts a decoded body to the payload; raises InvalidPayload."""

_SHOWN_PROBLEMS: Final = 5
_LISTED_PROBLEMS: Final = 5000
"""Beyond this number, listing them would take longer than handling the message."""

# Pydantic's own messages for these repeat a part of the input.
_WITHOUT_INPUT: Final = {
    "uuid_parsing": "Input should be a valid UUID",
    "union_tag_invalid": "Input's discriminator is none of the expected ones",
    "url_parsing": "Input should be a valid URL",
}


def make_validate(annotation: Any) -> Validate | None:
    """Return the conversion from a decoded body to `annotation`; None if any body is valid as it is.

    Raises:
        TypeError: no body can be converted to it; the text says why.
    """
    if annotation in {Any, object}:
        return None
    if isinstance(annotation, type) and annotation in {dict, list, str, bytes}:
        return _of_type(annotation)
    return _of_model(annotation)


def _of_type(kind: type) -> Validate:
    names: dict[type, str] = {dict: "an object", list: "an array", str: "text", bytes: "raw bytes"}

    def validate(body: Any) -> Any:
        if type(body) is kind:
            return body
        found = names.get(type(body), "another value")
        raise InvalidPayload(f"the body is {found}, the handler takes {names[kind]}")

    return validate


def _of_model(annotation: Any) -> Validate:
    adapter = _adapter(annotation)
    # The adapter's own methods are Python code around these, with options that are not used here.
    validator, name = adapter.validator, type_name(annotation)
    from_python, from_json = validator.validate_python, validator.validate_json
    if "'strict': True" in repr(adapter.core_schema):
        # In strict mode only JSON may represent a date as text.
        return _explaining(lambda body: from_json(json.dumps(body)), name)
    return _explaining(from_python, name)


def _explaining(parse: Callable[[Any], Any], name: str) -> Validate:
    def validate(body: Any) -> Any:
        try:
            return parse(body)
        except ValidationError as error:
            raise InvalidPayload(f"the body is not a valid {name}: {_problems(error)}") from None

    return validate


def _adapter(annotation: Any) -> TypeAdapter[Any]:
    try:
        adapter = TypeAdapter(annotation)
        adapter.rebuild(raise_errors=True)
    except PydanticUndefinedAnnotation as error:
        raise TypeError(f"its field types name {error.name!r}, which is not defined there") from None
    except PydanticSchemaGenerationError:
        raise TypeError("pydantic cannot build one from a message") from None
    except (PydanticUserError, TypeError, ValueError) as error:
        raise TypeError(str(error).partition("\n")[0]) from None
    return adapter


def _problems(error: ValidationError) -> str:
    """Return the positions and kinds of the problems, never the values: bodies may hold secrets."""
    count = error.error_count()
    if count > _LISTED_PROBLEMS:
        return f"{count:,} places are wrong"
    details = error.errors(include_url=False, include_input=False, include_context=False)
    texts = [_problem(detail["type"], detail["loc"], detail["msg"]) for detail in details[:_SHOWN_PROBLEMS]]
    if count > _SHOWN_PROBLEMS:
        texts.append(f"and {count - _SHOWN_PROBLEMS} more")
    return "; ".join(texts)


def _problem(kind: str, location: tuple[int | str, ...], message: str) -> str:
    message = _printable(_WITHOUT_INPUT.get(kind, message), 200)
    path = ""
    for step in location:
        path += f"[{step}]" if isinstance(step, int) else f"{'.' if path else ''}{_printable(step, 60)}"
    return f"{path}: {message}" if path else message


def _printable(text: str, length: int) -> str:
    text = text if len(text) <= length else text[: length - 1] + "…"
    return text if text.isprintable() else ascii(text)[1:-1]


def type_name(annotation: Any) -> str:
    """Return a type as people write it."""
    return annotation.__qualname__ if isinstance(annotation, type) else str(annotation).replace("typing.", "")
