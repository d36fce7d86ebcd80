"""Validates the tree against the model: reports every error at its place, with advice."""

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any, get_args, get_origin

from pydantic import BaseModel, ValidationError

from oncemq.config.model.app_model import AppModel, Consumer
from oncemq.config.model.fields import WrongValue, name
from oncemq.config.model.foreign_names import answer
from oncemq.config.model.routes_section import ROUTES, Route
from oncemq.config.model.shared_sections import Retry, RetryRule
from oncemq.config.source.problems import Position, Problems
from oncemq.config.source.tree import Fields, Path, Scalar, find, key_position, plain

_EITHER = (
    (
        ("handler", "routes"),
        "write handler: handlers:award_points",
        "write the handler of all other messages as otherwise: below routes",
    ),
    (
        ("topic", "topics"),
        "write topic: order.paid",
        "write all of them as topics: [orders, orders_legacy]",
    ),
)
"""Names of which a consumer has one: what to do about none of them, and about both."""
_MEANT = {"concurrency": "for the number of workers write workers: auto; to limit messages of one value "}
"""What other tools mean by the name of a mapping of ours."""
_NO_LIST = {"tuple_type": "should be a list of names", "list_type": "should be a list"}


def validate(tree: Fields, problems: Problems) -> AppModel | None:
    """Return the model, or None if there are errors; `problems` has them."""
    _check_names(tree, problems)
    details: Sequence[Any] = ()
    model = None
    try:
        model = AppModel.model_validate(plain(tree))
    except ValidationError as error:
        details = error.errors(include_url=False, include_input=False)
    for detail in details:
        _explain(detail, tree, problems)
    _check_handlers(tree, problems)
    return model


def _check_handlers(tree: Fields, problems: Problems) -> None:
    """Report consumers that have no handler or topic, or two ways to find one."""
    consumers = tree.fields.get("consumers")
    for key, consumer in consumers.fields.items() if isinstance(consumers, Fields) else ():
        if not isinstance(consumer, Fields):
            continue
        for (usual, other), missing, both in _EITHER:
            has_usual, has_other = _is_written(consumer, usual), _is_written(consumer, other)
            if not has_usual and not has_other:
                problems.add(key_position(tree, ("consumers", key)), f"`{usual}` is missing", missing)
            if has_usual and has_other:
                problems.add(
                    consumer.key_position(other), f"`{other}` and `{usual}` exclude each other", both
                )


def _is_written(consumer: Fields, name: str) -> bool:
    """Return whether the consumer has this name with a value; `handler:` without one is as if it were not there."""
    return name in consumer.fields and plain(consumer.fields[name]) is not None


def _check_names(tree: Fields, problems: Problems) -> None:
    for section in ("brokers", "consumers"):
        node = tree.fields.get(section)
        if isinstance(node, Fields):
            for key in node.fields:
                _check_name(key, node.key_position(key), problems)


def _check_name(key: str, position: Position, problems: Problems) -> None:
    try:
        name(key)
    except WrongValue as error:
        problems.add(position, str(error), error.advice)


def _explain(detail: Mapping[str, Any], tree: Fields, problems: Problems) -> None:
    path: Path = tuple(detail["loc"])
    path = tuple("schema" if step == "schema_" else step for step in path)
    match detail["type"]:
        case "extra_forbidden":
            _unknown_key(path, tree, problems)
        case _ if _is_misspelt(path):
            _unknown_key(path, tree, problems)
        case "missing":
            _missing(path, tree, problems)
        case _:
            _wrong_value(path, detail, tree, problems)


def _is_misspelt(path: Path) -> bool:
    """Return whether the name at `path` stands for an exception, but is rather a misspelt option of `retry:`."""
    name = str(path[-1])
    return (
        model_at(path[:-1]) is Retry
        and name not in field_names(Retry)
        and name.islower()
        and name.isidentifier()
    )


def _unknown_key(path: Path, tree: Fields, problems: Problems) -> None:
    key, owner = str(path[-1]), path[:-1]
    fields = field_names(model_at(owner))
    text, advice = unknown_name(key, fields, section_of(owner))
    problems.add(key_position(tree, path), text, advice)


def unknown_name(key: str, known: Sequence[str], section: str) -> tuple[str, str]:
    """Return the error for an unknown key and the advice: a suggestion, our name for it, or the list."""
    text = f"unknown name {key[:80]!r}"
    foreign = answer(key, section)
    if foreign:
        return f"there is no {key!r} here", foreign
    if key == "<<":
        return "merge keys are refused", "put what consumers share under `defaults:` or their topic"
    close = get_close_matches(key, known, n=1, cutoff=0.6)
    if close:
        return text, f"did you mean {close[0]!r}?"
    return text, f"known here: {', '.join(sorted(known))}"


def _missing(path: Path, tree: Fields, problems: Problems) -> None:
    field = str(path[-1])
    owner = path[:-1]
    position = key_position(tree, owner) if owner else Position(tree.position.file, 1, 1)
    info = model_at(owner).model_fields[field]
    example = f"write {field}: {info.examples[0]}" if info.examples else f"write {field}: {info.description}"
    if field == "brokers":
        example = 'write brokers: {local: {url: "embedded://"}}'
    problems.add(position, f"`{field}` is missing", example)


def _wrong_value(path: Path, detail: Mapping[str, Any], tree: Fields, problems: Problems) -> None:
    node, position, reached = find(tree, path)
    if isinstance(node, Fields) and reached:
        position = key_position(tree, reached)
    if isinstance(node, Scalar) and node.source is not None and problems.known_at(position):
        return  # a variable is missing, so its value is empty
    error = detail.get("ctx", {}).get("error")
    subject = _subject(path)
    if isinstance(error, WrongValue):
        text, advice = str(error), error.advice
    elif detail["type"] == "too_short":
        text, advice = "is empty", 'write brokers: {local: {url: "embedded://"}}'
    elif detail["type"] in _NO_LIST:
        text, advice = _NO_LIST[detail["type"]], f"put it into brackets: {path[-1]}: […]"
    else:
        known = ", ".join(field_names(model_at(path)))
        text, advice = (
            "should be a mapping",
            f"{_MEANT.get(str(path[-1]), '')}write names and values below it, indented; known here: {known}",
        )
    if isinstance(node, Scalar) and node.source is not None and len(str(node.value)) > 0:
        text, advice = _hide(text, node), _hide(advice, node)
    problems.add(position, f"{subject}: {text}", advice)


def _hide(text: str, node: Scalar) -> str:
    """Show the reference instead of a variable's value, which may be a misplaced secret."""
    return text.replace(repr(str(node.value)), f"{node.source}").replace(str(node.value), f"{node.source}")


def _subject(path: Path) -> str:
    names = [str(step) for step in path if not isinstance(step, int)]
    return f"`{names[-1]}`" if names else "the file"


def section_of(path: Path) -> str:
    """Return the section of the file that `path` is in, for names whose advice differs by section."""
    names = [str(step) for step in path if not isinstance(step, int)]
    if "retry" in names[2:] or names[:2] == ["defaults", "retry"]:
        return "retry"
    return names[0] if names else "app"


def field_names(model: type[BaseModel]) -> list[str]:
    """Return the field names as written in a file."""
    return [info.alias or field for field, info in model.model_fields.items()]


def model_at(path: Path) -> type[BaseModel]:
    """Return the part of the model for the mapping at `path`."""
    model: type[BaseModel] = AppModel
    chosen = False
    for step in path:
        if model is Consumer and step == ROUTES:
            model, chosen = Route, True
            continue
        # A user's name may equal a field's: a consumer may be called `retry`.
        info = None if chosen else model.model_fields.get(str(step))
        below = _models(info.annotation) if info is not None else []
        chosen = bool(below) and info is not None and _is_mapping(info.annotation)
        if info is None and not chosen and model is Retry:
            below = [RetryRule]  # of an exception
        model = below[0] if below else model
    return model


def _is_mapping(annotation: Any) -> bool:
    origin = get_origin(annotation)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return True
    return origin is not None and any(map(_is_mapping, get_args(annotation)))


def _models(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for part in get_args(annotation) for model in _models(part)]
