"""What an annotation asks for: a type itself, one that may be None, or a generic one's origin."""

from collections.abc import Mapping
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, get_args, get_origin

from sqlalchemy.orm import Session

Found = TypeVar("Found")


def find_in(by_type: Mapping[type, Found], annotation: Any) -> Found | None:
    """Return what `by_type` holds for an annotation; `X | None` asks for X."""
    if get_origin(annotation) in {Union, UnionType}:
        kinds = [kind for kind in get_args(annotation) if kind is not NoneType]
        return find_in(by_type, kinds[0]) if len(kinds) == 1 else None
    for kind in (annotation, get_origin(annotation)):
        try:
            if kind is not None and kind in by_type:
                return by_type[kind]
        except TypeError:
            continue
    return None


def looks_like_session(annotation: Any) -> bool:
    """Return whether it asks for a kind of session that cannot be handed over."""
    kinds = [annotation, *get_args(annotation)]
    return any(
        isinstance(kind, type)
        and (issubclass(kind, Session) or kind.__name__ in {"AsyncSession", "scoped_session"})
        for kind in kinds
    )
