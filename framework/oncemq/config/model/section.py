"""Mapping in a file: unknown names are refused, and values, which may be secret, are never shown."""

from typing import Any

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """A mapping in the file; its repr shows only which fields are set, since values may be secret."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, arbitrary_types_allowed=True, populate_by_name=True
    )

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(sorted(self.model_fields_set))})"

    def __str__(self) -> str:
        return repr(self)


class OpenSection(Section):
    """A mapping that may also contain an adapter's own options."""

    model_config = ConfigDict(extra="allow")

    @property
    def options(self) -> dict[str, Any]:
        """Return the adapter's options, as declared."""
        return dict(self.model_extra or {})
